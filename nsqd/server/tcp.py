"""Client connections: bytes from the socket to the session and back."""

import asyncio
import fcntl
import random
import ssl
import termios
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast

from nsqclient.net.layers import Compressed
from nsqclient.wire.compression import Deflate, Snappy
from nsqcore.process.listen import peer_ip, set_cork, set_keepalive, shown_peer
from nsqcore.process.logs import Log
from nsqcore.process.tls_layer import Tls
from nsqd.engine.broker import Broker
from nsqd.engine.topic import Topic
from nsqd.log.frames import Buffer
from nsqd.protocol.connection_state import HEARTBEAT
from nsqd.protocol.identify import Upgrade
from nsqd.protocol.session import Session
from nsqd.server.auth import AuthServers, asker_at
from nsqd.server.clock import busy_ns
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.heartbeats import Heartbeats
from nsqd.server.pending_replies import PendingReplies
from nsqd.server.read_quantum import FIRST, LONG_NS, ReadQuantum
from nsqd.server.write_batch import PIPELINED, OnDurable, WriteBatch

# 2500 messages (RDY) of 200 bytes are 585 KB: with asyncio's 64 KiB every delivery would stall half-way.
WRITE_BUFFER_HIGH: Final = 2 << 20
SMALL_READ: Final = 4096
# After so many bytes of long messages of one client, other clients are served.
LONG_BYTES: Final = 1 << 20
# The bytes after a long message are read into this buffer, and copied out within one call. All connections
# share it.
_line: Final = memoryview(bytearray(SMALL_READ))
# Errors that are logged in one turn: a client that only sends errors would keep nsqd busy with logging.
MAX_LOGGED: Final = 10
# A consumer that does not read is still read from; it is cut off when so many bytes of replies wait for it.
MAX_UNREAD: Final = 16 << 20


@dataclass(slots=True)
class Clients:
    """All client connections of one nsqd, and the objects that each of them needs."""

    broker: Broker
    write_batch: WriteBatch
    log: Log
    tls: ssl.SSLContext | None
    auth: AuthServers
    # Takes over a connection of another node, with the bytes already read from it.
    accept_peer: Callable[[asyncio.Transport, bytes], None]
    connections: dict["ClientConnection", None] = field(default_factory=dict)
    accepted: int = 0

    def accept(self) -> asyncio.Protocol:
        return cast("asyncio.Protocol", ClientConnection(self))

    def forget_publish_lines(self) -> None:
        for connection in self.connections:
            connection.session.forget_publish_lines()

    def close_idle_publishers(self) -> None:
        for connection in list(self.connections):
            connection.close_if_idle_publisher()

    def close_all(self) -> None:
        for connection in list(self.connections):
            connection.close()


class LongBodies(asyncio.BufferedProtocol):
    """Reads from a client that publishes long messages, each into its final place: see `LongBody`.

    A client that sends anything else has its `ClientConnection` as the transport's protocol.
    """

    def __init__(self, connection: "ClientConnection") -> None:
        self._connection = connection

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        body = self._connection.session.body
        return _line if body is None else body.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.body_received(nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def eof_received(self) -> bool:
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()


class ClientConnection:
    """One V2 client; its first methods are those of asyncio.Protocol.

    It does not inherit from asyncio.Protocol, so that all of it can be compiled.
    """

    __slots__ = (
        "_asking",
        "_bodies",
        "_clients",
        "_heartbeats",
        "_host",
        "_long_bytes",
        "_loop",
        "_pending_replies",
        "_read_quantum",
        "_settings",
        "_shaking_hands",
        "_slicing",
        "_transport",
        "_working",
        "connected_at",
        "peer",
        "session",
    )

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._heartbeats = Heartbeats(self)
        # Replies that wait for an fsync or a replica, and later replies behind them.
        self._pending_replies: deque[PendingReplies] = deque()
        # A TLS handshake is under way.
        self._shaking_hands = False
        # The question to the auth servers; nothing is read from the client until they answer.
        self._asking: asyncio.Task[None] | None = None
        # A batch of very many messages is being published, or commands that make many topics are applied.
        self._slicing = False
        # Bytes that are processed a portion at a time, and whether rounds of the loop are doing so.
        self._read_quantum = ReadQuantum()
        self._working = False
        # Reads long messages, once the client has sent one; and their bytes since others had their turn.
        self._bodies: LongBodies | None = None
        self._long_bytes = 0
        self._host = ""
        self.connected_at = int(time.time())
        self.peer = ""
        self.session: Session

    # --- asyncio's calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH)
        peername = transport.get_extra_info("peername")
        self.peer = shown_peer(peername)
        self._host = peer_ip(peername)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            set_keepalive(sock)
        self.session = Session(self._clients.broker, self, self._host, _sampler)
        self._settings = self.session.settings
        self._clients.connections[self] = None
        self._clients.accepted += 1
        self._clients.log.info("TCP: new client(%s)", self.peer)
        self._start_timers()

    def data_received(self, data: bytes) -> None:
        self._heartbeats.heard = self._loop.time()
        if self._working:
            # A layer may deliver bytes that it has already decoded, though reading is paused.
            self._read_quantum.add(data)
            return
        session, size = self.session, len(data)
        now_ns = clock_ns()
        if size <= SMALL_READ:
            session.receive(data, now_ns)
        elif size < self._read_quantum.whole:
            session.receive(data, now_ns)
            took_ns = clock_ns() - now_ns
            if took_ns > LONG_NS:
                self._worked(size, took_ns, now_ns)
        else:
            self._read_quantum.add(data)
            self._work()
        if session.stream is not None:
            self._hand_over(session.stream)
            return
        if size > SMALL_READ and not (session.upgraded or self._working) and session.begin_body():
            self._bodies = self._bodies or LongBodies(self)
            self._read_with(self._bodies)
        # Clients that wait for each answer publish a little at a time. An upgrade of the connection waits for
        # the end of the round, when no call reads from it.
        waits = size <= SMALL_READ and session.staged and not session.upgrading
        self._applied(now_ns if waits else 0)

    def _applied(self, waits_since_ns: int) -> None:
        """Continue after commands were applied; the client waits for a reply unless *waits_since_ns* is 0."""
        session = self.session
        if session.settings is not self._settings:
            self._settings = session.settings
            self._start_timers()
        if session.is_blocked():
            self._start_pending()
        self._clients.write_batch.request_turn_for(self, waits_since_ns)

    def _read_with(self, protocol: "LongBodies | ClientConnection") -> None:
        """Let *protocol* receive the bytes that are read from now on."""
        transport = self._transport
        if transport is not None:
            # The transport checks its protocol when it begins to read.
            transport.pause_reading()
            transport.set_protocol(cast("asyncio.BaseProtocol", protocol))
            transport.resume_reading()

    def body_received(self, count: int) -> None:
        """*count* bytes were read into the long message that is under way, or behind the last one."""
        self._heartbeats.heard = self._loop.time()
        session = self.session
        body = session.body
        if body is None:
            data = bytes(_line[:count])
            if not session.begin_body(data):
                self._read_with(self)
                self.data_received(data)
            return
        body.received(count)
        if body.missing:
            return
        self._long_bytes += body.size
        now_ns = clock_ns()
        session.end_body(now_ns)
        self._applied(now_ns if session.staged else 0)
        transport = self._transport
        if self._long_bytes >= LONG_BYTES and transport and not (self.deaf or transport.is_closing()):
            # Otherwise the loop would read up to 32 times from this client, before others.
            self._long_bytes = 0
            self._working = True
            transport.pause_reading()
            self._loop.call_soon(self._work_on)

    def _work(self) -> None:
        """Apply the next portion of the bytes read."""
        read_quantum = self._read_quantum
        portion = read_quantum.take()
        now_ns = clock_ns()
        watched = read_quantum.watched
        begun_ns = busy_ns() if watched else now_ns
        self.session.receive(portion, now_ns)
        self._worked(len(portion), (busy_ns() if watched else clock_ns()) - begun_ns, now_ns)

    def _worked(self, size: int, took_ns: int, now_ns: int) -> None:
        """Note that a portion of *size* bytes was applied, and let others run before the next one."""
        session, read_quantum = self.session, self._read_quantum
        read_quantum.took(size, took_ns)
        if session.stream is not None:
            session.stream += read_quantum.take_all()
            return
        left = bool(read_quantum)
        if left and (session.is_blocked() or session.upgrading or session.closing):
            # The session keeps the rest while it waits, and drops it when it is upgrading or closing.
            session.receive(read_quantum.take_all(), now_ns)
            left = False
        long = left or (took_ns > LONG_NS and size >= FIRST)
        # No layer may be put around the transport while it is paused: it would not be read any more.
        if long and not session.upgrading and self._transport is not None and not self._working:
            # Otherwise the loop would read up to 32 times from a client that sends ahead, before others.
            self._working = True
            self._transport.pause_reading()
            self._loop.call_soon(self._work_on)

    def _work_on(self) -> None:
        if self._read_quantum and self._transport is not None:
            self._work()
            self._clients.write_batch.request_turn_for(self)
        if self._read_quantum and self._transport is not None:
            self._loop.call_soon(self._work_on)
            return
        self._working = False
        if self._transport is not None:
            self._resume_reading()

    def _hand_over(self, data: bytes) -> None:
        """Give the connection to replication, because the peer is another node, not a client."""
        transport = self._transport
        self._transport = None
        self._heartbeats.end()
        self._clients.connections.pop(self, None)
        self.session.disconnect()
        if transport is not None:
            self._clients.accept_peer(transport, data)

    def eof_received(self) -> bool:
        if self._read_quantum:
            self.session.receive(self._read_quantum.take_all(), clock_ns())
        self.session.end_of_stream(clock_ns())
        if self.session.is_blocked():
            self._start_pending()
        self._clients.write_batch.request_turn_for(self)
        # Keep the connection open until the turn has sent the last replies.
        return True

    def pause_writing(self) -> None:
        consumer = self.session.consumer
        if consumer is not None:
            # Its commands are still read: some clients send all their answers before they read on.
            consumer.blocked = True
        elif self._transport is not None:
            # The replies to a producer that does not read must not fill the memory.
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._heartbeats.heard = self._loop.time()
        if self._transport is not None and not self._transport.is_reading() and not self.deaf:
            self._transport.resume_reading()
        consumer = self.session.consumer
        if consumer is not None:
            consumer.blocked = False
            if consumer.channel is not None and consumer.channel.refresh(consumer):
                self._clients.broker.serve(consumer.channel)
                self._clients.write_batch.request_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        # It refers to this connection, and together they would stay until a collection.
        self._bodies = None
        self._read_quantum.take_all()
        self._heartbeats.end()
        if self._asking is not None:
            self._asking.cancel()
        self._clients.connections.pop(self, None)
        self.session.disconnect()
        if exc is not None:
            self._clients.log.info("client(%s) - %s", self.peer, exc)
        self._clients.log.info("PROTOCOL(V2): [%s] exiting ioloop", self.peer)
        self._clients.write_batch.request_turn()

    # --- what the turn and the engine's consumers call ---

    def not_stored(self, topic: Topic, reason: str) -> None:
        self.session.not_stored(topic, reason)

    def answer(self) -> None:
        """Send the replies of this turn; then close or upgrade the connection if the session says so."""
        session = self.session
        if self._pending_replies:
            # Replies are sent in order, so these join those that wait, though they need not wait themselves.
            self.defer_replies(0)
            return
        self._log_errors()
        transport = self._transport
        if transport is None:
            return
        moving = self._clients.broker.drain_pending and not (session.closing or session.upgrading)
        if session.replies:
            if moving:
                _cork(transport, on=True)
            transport.write(session.take_replies())
            consumer = session.consumer
            if consumer is not None and consumer.blocked and transport.get_write_buffer_size() > MAX_UNREAD:
                self._clients.log.error("client(%s) - does not read its replies", self.peer)
                transport.abort()
        if session.closing:
            transport.close()
        elif session.upgrading:
            self._upgrade(transport)
        elif moving:
            self.close_if_idle_publisher()

    def close_if_idle_publisher(self) -> None:
        """Close the connection of a publisher that waits for no answer, so that it goes to another node.

        The last answer, held back by `_cork`, and the end arrive together: no publish can come between them.
        """
        transport = self._transport
        if (
            transport is not None
            and self.session.is_idle_publisher
            and not (self._pending_replies or self._read_quantum or self.deaf)
            and not _has_unread(transport)
        ):
            if transport.can_write_eof():
                # close() ends the connection a round of the loop later, when the client may have gone on.
                transport.write_eof()
            transport.close()
        elif transport is not None:
            _cork(transport, on=False)

    def published(self) -> list[Topic]:
        """The topics that this turn's replies answer publishes to."""
        marks = self.session.staged
        return [marks[0].topic] if len(marks) == 1 else list({mark.topic: None for mark in marks})

    def pending(self) -> int:
        """How many replies are to be sent; `MANY` if earlier replies are held back."""
        return PIPELINED if self._pending_replies else len(self.session.replies)

    def defer_replies(self, waiting: int) -> OnDurable | None:
        """Delay the replies until *waiting* calls of the result, which take a topic and why it failed.

        Returns None if the replies wait neither for a topic nor for earlier replies.
        """
        if not (waiting or self._pending_replies):
            return None
        self._log_errors()
        part = PendingReplies(self.session, waiting)
        self._pending_replies.append(part)
        return partial(self._resolve, part)

    def _resolve(self, part: PendingReplies, topic: Topic, reason: str) -> None:
        part.resolve(topic, reason)
        while self._pending_replies and not self._pending_replies[0].waiting:
            first = self._pending_replies.popleft()
            transport = self._transport
            if transport is None:
                continue
            replies = first.text()
            if first.error is not None:
                self._clients.log.error("[%s] - %s", self.peer, first.error)
            moving = self._clients.broker.drain_pending and not (first.closing or first.upgrading)
            if replies:
                if moving:
                    _cork(transport, on=True)
                transport.write(replies)
            if first.closing:
                transport.close()
            elif first.upgrading:
                self._upgrade(transport)
            elif moving:
                self.close_if_idle_publisher()

    def send_messages(self, frames: list[Buffer]) -> None:
        if self._transport is not None:
            if len(frames) == 1:
                self._transport.write(frames[0])
            else:
                self._transport.writelines(frames)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # --- AUTH, long batches ---

    @property
    def deaf(self) -> bool:
        """Whether reading is paused until AUTH, a long batch or many commands are dealt with."""
        return self._asking is not None or self._slicing or self._working

    def _start_pending(self) -> None:
        """Start the work that the session waits for, unless it runs already; reading pauses until its end."""
        if self._asking is not None or self._slicing or self._transport is None:
            return
        self._transport.pause_reading()
        if self.session.query is None:
            self._slicing = True
            self._loop.call_soon(self._resume)
        else:
            self._asking = self._loop.create_task(self._authorize(), name=f"AUTH {self.peer}")

    async def _authorize(self) -> None:
        """Ask the auth servers while the session has questions, then read on."""
        session = self.session
        while session.query is not None and self._transport is not None:
            asker = asker_at(self._transport, self._host, session.query.secret)
            found = await self._clients.auth.ask(asker, self.peer)
            session.authorized(found, clock_ns())
            self._clients.write_batch.request_turn_for(self)
        self._asking = None
        self._resume_reading()

    def _resume(self) -> None:
        """Publish the next slice of a long batch, or apply the commands that waited for other clients."""
        self.session.resume(clock_ns())
        self._clients.write_batch.request_turn_for(self)
        if self.session.batch is not None:
            self._loop.call_soon(self._resume)
        else:
            self._slicing = False
            self._resume_reading()

    def _resume_reading(self) -> None:
        # The time in which nothing was read does not count as silence of the client.
        self._heartbeats.heard = self._loop.time()
        session = self.session
        if session.settings is not self._settings:
            self._settings = session.settings
            self._start_timers()
        if session.is_blocked():
            # Commands read at the same time may need it.
            self._start_pending()
            return
        transport = self._transport
        # From a client that does not read its replies, nsqd reads on when it does: see `resume_writing`.
        if transport is not None and transport.get_write_buffer_size() <= WRITE_BUFFER_HIGH:
            transport.resume_reading()

    # --- upgrades ---

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The TLS object of the connection, for the statistics; None without TLS."""
        if self._transport is None:
            return None
        return cast("ssl.SSLObject | None", self._transport.get_extra_info("ssl_object"))

    def _upgrade(self, transport: asyncio.Transport) -> None:
        """Put the next granted layer around *transport*, after the last reply without it was written."""
        session = self.session
        if self._shaking_hands or not session.upgrading:
            # An earlier answer of the same turn has started the upgrade, or done it.
            return
        # Nothing is sent unasked until the connection is upgraded.
        self._heartbeats.stop()
        upgrade, level = session.upgrading[0], session.settings.deflate_level
        shown = f"{upgrade.value} (level {level})" if upgrade is Upgrade.DEFLATE else upgrade.value
        self._clients.log.info("PROTOCOL(V2): [%s] upgrading connection to %s", self.peer, shown)
        as_protocol = cast("asyncio.Protocol", self)
        if upgrade is Upgrade.TLS:
            self._shaking_hands = True
            # TLS is granted only with a certificate, so the context exists.
            Tls(transport, as_protocol, cast("ssl.SSLContext", self._clients.tls), self._shook_hands)
            return
        codec = Deflate(level) if upgrade is Upgrade.DEFLATE else Snappy()
        self._upgraded(Compressed(transport, as_protocol, codec))

    def _shook_hands(self, tls: Tls, why_not: str) -> None:
        self._shaking_hands = False
        if why_not:
            self.session.upgrade_failed(why_not)
            self.answer()
        else:
            self._upgraded(tls)

    def _upgraded(self, transport: asyncio.Transport) -> None:
        """Use *transport* from now on, and send the confirmation of the upgrade through it."""
        self._transport = transport
        session = self.session
        session.upgrade_done()
        transport.write(session.take_replies())
        if session.upgrading:
            self._upgrade(transport)
        else:
            self._start_timers()

    # --- heartbeats ---

    def _start_timers(self) -> None:
        self._heartbeats.start(self._settings.heartbeat_ms / 1000)

    def beat(self) -> bool:
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if self.session.started:
            transport.write(HEARTBEAT)
        return True

    def cut_off(self, silent_s: float) -> None:
        self._clients.log.info("client(%s) - nothing received for %.0f s", self.peer, silent_s)
        # Such a silent peer may not read either, so unsent bytes are dropped.
        self.session.end_of_stream(clock_ns())
        self.answer()
        if self._transport is not None:
            self._transport.abort()

    def _log_errors(self) -> None:
        errors = self.session.errors
        if errors:
            for error in errors[:MAX_LOGGED]:
                sentence = str(error).encode("utf-8", "backslashreplace").decode()
                self._clients.log.error("[%s] - %s", self.peer, sentence)
            if len(errors) > MAX_LOGGED:
                self._clients.log.error("[%s] - and %d more", self.peer, len(errors) - MAX_LOGGED)
            errors.clear()


def _cork(transport: asyncio.Transport, *, on: bool) -> None:
    sock = transport.get_extra_info("socket")
    if sock is not None:
        set_cork(sock, on=on)


def _has_unread(transport: asyncio.Transport) -> bool:
    """Whether the client has sent bytes that are not read yet: a close would reset the connection."""
    sock = transport.get_extra_info("socket")
    return sock is not None and fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(4)) != bytes(4)


def _sampler(rate: int) -> Callable[[], bool]:
    """A random choice for a sample rate; as in the original it delivers (rate + 1) percent."""
    return lambda: random.randrange(100) <= rate
