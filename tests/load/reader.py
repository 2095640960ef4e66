"""Reads one channel from every nsqd that nsqlookupd names, on blocking sockets, and writes down what came."""

import select
import time
from dataclasses import dataclass
from typing import Final

from nsqclient.wire import commands
from nsqclient.wire.errors import ProtocolError
from nsqclient.wire.frames import FrameError
from nsqclient.wire.message import MessageRecord
from tests.load.connection import Connection
from tests.load.discovery import producers_of
from tests.load.journal import Journal

# How often nsqlookupd is asked; a restarted nsqd is found this soon.
LOOKUP_SECONDS: Final = 1.0

BROKEN: Final = (OSError, ProtocolError, FrameError)


@dataclass(frozen=True)
class Outcome:
    """One thing that happened in a turn: a connection made, messages read, or the error instead."""

    what: str
    milliseconds: float
    size: int = 0
    error: Exception | None = None


class Reader:
    """A consumer in one thread: call ``turn`` again and again, ``close`` at the end."""

    def __init__(self, lookupd: str, topic: str, channel: str, journal: Journal, ready: int = 500) -> None:
        self._lookupd = lookupd
        self._topic = topic
        self._channel = channel
        self._journal = journal
        self._ready = ready
        self._connections: dict[str, Connection] = {}
        self._lookup_at = 0.0

    def turn(self, wait: float) -> list[Outcome]:
        """Look for new nsqd when that is due, then read what is there, waiting so many seconds for it."""
        outcomes = self._discover() if time.monotonic() >= self._lookup_at else []
        readable, _, _ = select.select(list(self._connections.values()), [], [], wait)
        outcomes += [self._read(connection) for connection in readable]
        return outcomes

    def close(self) -> None:
        """Take no more, finish what is on its way, and leave."""
        for connection in self._connections.values():
            try:
                self._finish(connection, connection.end())
                connection.leave()
            except BROKEN:
                connection.close()  # what was not finished is delivered again; the comparison counts it
        self._connections.clear()

    def _discover(self) -> list[Outcome]:
        self._lookup_at = time.monotonic() + LOOKUP_SECONDS
        began = time.perf_counter()
        try:
            found = producers_of(self._lookupd, self._topic)
        except (OSError, ValueError) as error:
            return [Outcome("LOOKUP", _since(began), error=error)]
        missing = [address for address in found if address not in self._connections]
        return [Outcome("LOOKUP", _since(began)), *map(self._subscribe, missing)]

    def _subscribe(self, address: str) -> Outcome:
        began = time.perf_counter()
        try:
            connection = Connection(address)
            try:
                connection.request(commands.sub(self._topic, self._channel))
                connection.send(commands.rdy(self._ready))
            except BaseException:
                connection.close()
                raise
        except BROKEN as error:
            return Outcome("SUB", _since(began), error=error)
        self._connections[address] = connection
        return Outcome("SUB", _since(began))

    def _read(self, connection: Connection) -> Outcome:
        try:
            messages = connection.take()
            self._finish(connection, messages)
        except BROKEN as error:
            connection.close()
            del self._connections[connection.address]
            return Outcome("DELIVERY", 0, error=error)
        if not messages:
            return Outcome("HEARTBEAT", 0)
        # From the publish to here, of the one that waited longest.
        oldest = min(message.timestamp_ns for message in messages)
        size = sum(len(message.body) for message in messages)
        return Outcome("DELIVERY", (time.time_ns() - oldest) / 1e6, size)

    def _finish(self, connection: Connection, messages: list[MessageRecord]) -> None:
        # Noted first: a message that was finished but not noted would look lost.
        self._journal.note(message.body.partition(b" ")[0] for message in messages)
        connection.finish(messages)


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1000
