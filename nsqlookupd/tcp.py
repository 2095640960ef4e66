"""The announcing side of nsqlookupd: bytes to commands to the session, and the replies back."""

import asyncio
import time
from typing import Final, cast

from nsqcore.service.listen import set_keepalive, shown_peer
from nsqcore.service.logs import Log
from nsqcore.wire.errors import ProtocolError
from nsqcore.wire.lookup import CommandParser, encode_reply
from nsqlookupd.registry import Registry
from nsqlookupd.session import Note, Session

# A peer that sends commands and never reads the answers is cut off rather than buffered for.
MAX_UNSENT: Final = 1024 * 1024


class Connections:
    """Every open announcing connection, and what it takes to serve one."""

    def __init__(self, registry: Registry, log: Log) -> None:
        self.registry = registry
        self.log = log
        self.identity = b"{}"
        """The JSON answered to IDENTIFY, known once the listeners are bound."""
        self.commands_total = 0
        self.errors_total = 0
        self._open: set[Connection] = set()
        self._all_closed: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._open)

    def accept(self) -> "Connection":
        return Connection(self)

    def opened(self, connection: "Connection") -> None:
        self._open.add(connection)

    def closed(self, connection: "Connection") -> None:
        self._open.discard(connection)
        if not self._open and self._all_closed is not None:
            self._all_closed.set()

    async def close_all(self) -> None:
        """Close every connection, and return when their sessions have ended."""
        for connection in list(self._open):
            connection.drop()
        if self._open:
            self._all_closed = asyncio.Event()
            await self._all_closed.wait()


class Connection(asyncio.Protocol):
    """One announcing peer."""

    def __init__(self, owner: Connections) -> None:
        self._owner = owner
        self._log = owner.log
        self._parser = CommandParser()
        self._peer_name = ""
        self._transport: asyncio.Transport
        self._session: Session

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._peer_name = shown_peer(transport.get_extra_info("peername"))
        set_keepalive(transport.get_extra_info("socket"))
        self._session = Session(self._owner.registry, self._owner.identity, self._peer_name)
        self._owner.opened(self)
        self._log.info("TCP: new client(%s)", self._peer_name)

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        replies: list[bytes] = []
        now_ns = time.time_ns()
        try:
            while (command := self._parser.next_command()) is not None:
                self._owner.commands_total += 1
                answer = self._session.handle(command, now_ns)
                replies.append(encode_reply(answer.payload))
                self._write_notes(answer.notes)
        except ProtocolError as error:
            self._fail(error, replies)
            return
        if replies:
            self._transport.write(b"".join(replies))
            if self._transport.get_write_buffer_size() > MAX_UNSENT:
                self._log.error("client(%s) - does not read its replies", self._peer_name)
                self.drop()

    def eof_received(self) -> bool:
        try:
            self._parser.end_of_stream()
        except ProtocolError as error:
            self._fail(error, [])
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._log.error("client(%s) - %s", self._peer_name, exc)
        self._log.info("PROTOCOL(V1): [%s] exiting ioloop", self._peer_name)
        self._write_notes(self._session.close())
        self._owner.closed(self)

    def drop(self) -> None:
        self._transport.abort()

    def _fail(self, error: ProtocolError, replies: list[bytes]) -> None:
        """Answer what came before, then the error, then close: every error of this protocol is fatal."""
        self._owner.errors_total += 1
        self._log.error("[%s] - %s", self._peer_name, error)
        replies.append(encode_reply(error.payload()))
        self._transport.write(b"".join(replies))
        self._transport.close()

    def _write_notes(self, notes: tuple[Note, ...]) -> None:
        for note in notes:
            if note.warning:
                self._log.warning("%s", note.text)
            else:
                self._log.info("%s", note.text)
