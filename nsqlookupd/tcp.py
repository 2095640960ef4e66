"""The announcing side of nsqlookupd: it passes commands to the session and replies to the peer."""

import asyncio
from collections.abc import Iterable
from typing import Final, cast

from nsqclient.wire.errors import ProtocolError
from nsqcore.lookup_protocol import CommandParser, encode_reply
from nsqcore.process.clock import steady_ns
from nsqcore.process.listen import set_keepalive, shown_peer
from nsqcore.process.logs import Log
from nsqlookupd.registry import Registry
from nsqlookupd.rounds import Rounds
from nsqlookupd.session import NOTES, NsqdSession, SessionNote

# Bytes of replies that are buffered; a peer that sends commands and never reads the replies is cut off.
MAX_UNSENT: Final = 1024 * 1024
# An nsqd sends IDENTIFY first. Without one for so long the peer is no nsqd, and occupies a descriptor.
IDENTIFY_TIMEOUT_S: Final = 60.0
# Bytes that wait in a socket are read within this time.
READ_GRACE_S: Final = 0.05


class NsqdConnections:
    """All open announcing connections, and the objects that serve them."""

    def __init__(self, registry: Registry, log: Log) -> None:
        self.registry = registry
        self.log = log
        self.identity = b"{}"
        """The JSON that answers IDENTIFY, known once the listeners are bound."""
        self.identify_timeout_s = IDENTIFY_TIMEOUT_S
        self.rounds = Rounds()
        self.commands_total = 0
        self.errors_total = 0
        self._open: set[NsqdConnection] = set()
        self._all_closed: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._open)

    def accept(self) -> "NsqdConnection":
        return NsqdConnection(self)

    def opened(self, connection: "NsqdConnection") -> None:
        self._open.add(connection)

    def closed(self, connection: "NsqdConnection") -> None:
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


class NsqdConnection(asyncio.Protocol):
    """One announcing peer."""

    def __init__(self, owner: NsqdConnections) -> None:
        self._owner = owner
        self._log = owner.log
        self._parser = CommandParser()
        self._peer_name = ""
        self._transport: asyncio.Transport
        self._session: NsqdSession
        # Whether received commands are being carried out in steps; reading pauses if more bytes arrive then.
        self._working = False
        self._ended = False
        self._lost = False
        # Runs until the first command arrives.
        self._mute: asyncio.TimerHandle | None = None

    # -- asyncio's calls -----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._peer_name = shown_peer(transport.get_extra_info("peername"))
        set_keepalive(transport.get_extra_info("socket"))
        self._session = NsqdSession(self._owner.registry, self._owner.identity, self._peer_name)
        self._owner.opened(self)
        self._log.info("TCP: new client(%s)", self._peer_name)
        loop = asyncio.get_running_loop()
        self._mute = loop.call_later(self._owner.identify_timeout_s, self._check_silent)

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        self._work()

    def eof_received(self) -> bool:
        self._ended = True
        self._work()
        # Keep the connection open until the commands before the end are answered.
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._heard()
        if exc is not None:
            self._log.error("client(%s) - %s", self._peer_name, exc)
        self._log.info("PROTOCOL(V1): [%s] exiting ioloop", self._peer_name)
        self._lost = True
        self._session.close(steady_ns())
        self._owner.closed(self)
        self._owner.rounds.add(self._forget)

    def drop(self) -> None:
        self._transport.abort()

    # -- steps ---------------------------------------------------------------------

    def _work(self) -> None:
        if not self._working:
            self._working = True
            self._owner.rounds.add(self._execute)
        elif not self._ended:
            self._transport.pause_reading()

    def _execute(self, at_most: int) -> int:
        """Carry out up to *at_most* commands; returns how many there were."""
        if self._lost or self._transport.is_closing():
            return 0
        session = self._session
        session.notes_left = NOTES if self._log.info_enabled else 0
        session.unnoted = 0
        replies: list[bytes] = []
        done = 0
        now_ns = steady_ns()
        try:
            while done < at_most and (command := self._parser.next_command()) is not None:
                done += 1
                answer = session.handle(command, now_ns)
                replies.append(encode_reply(answer.payload))
                if answer.notes:
                    self._write_notes(answer.notes)
            if done < at_most and self._ended:
                self._parser.end_of_stream()
        except ProtocolError as error:
            self._fail(error, replies)
            return 0
        if done:
            self._heard()
            if session.unnoted and self._log.info_enabled:
                self._log.info("DB: client(%s) REGISTER %d more keys", self._peer_name, session.unnoted)
            self._owner.commands_total += done
            self._transport.write(b"".join(replies))
            if self._transport.get_write_buffer_size() > MAX_UNSENT:
                self._log.error("client(%s) - does not read its replies", self._peer_name)
                self.drop()
                return 0
        if done < at_most:
            self._caught_up()
        return done

    def _caught_up(self) -> None:
        self._working = False
        if self._ended:
            self._transport.close()
        elif not self._transport.is_reading():
            self._transport.resume_reading()

    def _forget(self, at_most: int) -> int:
        """Forget up to *at_most* registrations of this lost connection; returns how many there were."""
        notes = self._session.forget(at_most)
        self._write_notes(notes)
        return len(notes)

    # -- silence -------------------------------------------------------------------

    def _heard(self) -> None:
        if self._mute is not None:
            self._mute.cancel()
            self._mute = None

    def _check_silent(self) -> None:
        # The loop runs timers before it reads sockets, so bytes that the peer sent while this process was
        # stopped or busy may still be unread.
        self._mute = asyncio.get_running_loop().call_later(READ_GRACE_S, self._close_mute)

    def _close_mute(self) -> None:
        self._mute = None
        self._log.warning("client(%s) - said nothing", self._peer_name)
        self.drop()

    # -- replies -------------------------------------------------------------------

    def _fail(self, error: ProtocolError, replies: list[bytes]) -> None:
        """Send *replies*, then the error, then close: every error of this protocol is fatal."""
        self._owner.errors_total += 1
        self._log.error("[%s] - %s", self._peer_name, error)
        replies.append(encode_reply(error.payload()))
        self._transport.write(b"".join(replies))
        self._transport.close()

    def _write_notes(self, notes: Iterable[SessionNote]) -> None:
        for note in notes:
            if note.warning:
                self._log.warning("%s", note.text)
            else:
                self._log.info("%s", note.text)
