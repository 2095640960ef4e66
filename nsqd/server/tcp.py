"""Client connections: bytes from the socket to the session and back."""

import asyncio
import random
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast

from nsqcore.process.listen import set_keepalive, shown_peer
from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker
from nsqd.engine.topic import Topic
from nsqd.log.frames import Piece
from nsqd.protocol.replies import HEARTBEAT
from nsqd.protocol.session import Session
from nsqd.server.auth import AuthServers, asker_at
from nsqd.server.clock import busy_ns
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.complaints import written
from nsqd.server.heartbeats import Heartbeats
from nsqd.server.held import HeldReplies
from nsqd.server.portions import FIRST, LONG_NS, Portions
from nsqd.server.turn import MANY, Settle, Turn
from nsqd.server.upgrades import Upgrades

# RDY 2500 of 200 bytes is 585 KB: with asyncio's 64 KiB every delivery would stall half-way.
WRITE_BUFFER_HIGH: Final = 2 << 20
SMALL_READ: Final = 4096
# A consumer is read on while it does not read; whoever lets so much of replies pile up is cut off.
MAX_UNREAD: Final = 16 << 20


@dataclass(slots=True)
class Clients:
    """All connections of one nsqd, and what each of them needs."""

    broker: Broker
    turn: Turn
    log: Log
    tls: ssl.SSLContext | None
    auth: AuthServers
    connections: dict["ClientConnection", None] = field(default_factory=dict)
    accepted: int = 0
    # Takes over a connection of another node, with what came of it.
    keep: Callable[[asyncio.Transport, bytes], None] | None = None

    def accept(self) -> asyncio.Protocol:
        return cast("asyncio.Protocol", ClientConnection(self))

    def forget_publish_lines(self) -> None:
        for connection in self.connections:
            connection.session.forget_publish_lines()

    def close_all(self) -> None:
        for connection in list(self.connections):
            connection.close()


class ClientConnection:
    """One V2 client; its first methods are those of asyncio.Protocol.

    It does not inherit from that, so that all of it can be compiled.
    """

    __slots__ = (
        "_asking",
        "_clients",
        "_heartbeats",
        "_held",
        "_host",
        "_loop",
        "_portions",
        "_settings",
        "_slicing",
        "_transport",
        "_upgrades",
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
        # Replies that wait for an fsync, and later ones behind them.
        self._held: deque[HeldReplies] = deque()
        # What puts layers round the transport, once one was granted.
        self._upgrades: Upgrades | None = None
        # The question to the auth servers; nothing is read from the client until it is answered.
        self._asking: asyncio.Task[None] | None = None
        # A batch of very many messages is being published.
        self._slicing = False
        # What was read and is worked on a portion at a time, in rounds of the loop that are under way.
        self._portions = Portions()
        self._working = False
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
        self._host = str(peername[0]) if isinstance(peername, tuple) else ""
        sock = transport.get_extra_info("socket")
        if sock is not None:
            set_keepalive(sock)
        self.session = Session(self._clients.broker, self, self._host, _keep_for)
        self._settings = self.session.settings
        self._clients.connections[self] = None
        self._clients.accepted += 1
        self._clients.log.info("TCP: new client(%s)", self.peer)
        self._start_timers()

    def data_received(self, data: bytes) -> None:
        self._heartbeats.heard = self._loop.time()
        if self._working:
            # A layer had more in hand than it could keep back.
            self._portions.put(data)
            return
        session, size = self.session, len(data)
        if size <= SMALL_READ:
            session.receive(data, clock_ns())
        elif size < self._portions.whole:
            now_ns = clock_ns()
            session.receive(data, now_ns)
            took_ns = clock_ns() - now_ns
            if took_ns > LONG_NS:
                self._worked(size, took_ns, now_ns)
        else:
            self._portions.put(data)
            self._work()
        if session.stream is not None:
            self._hand_over(session.stream)
            return
        if session.settings is not self._settings:
            self._settings = session.settings
            self._start_timers()
        if session.waits():
            self._have_it_done()
        # A little at a time is published by clients that wait for each answer. What changes the connection
        # itself is left to the end of the round, when nobody is reading from it.
        waits = size <= SMALL_READ and bool(session.marks) and not session.upgrading
        self._clients.turn.ask_for(self, waits=waits)

    def _work(self) -> None:
        """Apply a portion of what was read."""
        portions = self._portions
        portion = portions.take()
        now_ns = clock_ns()
        watched = portions.watched
        begun_ns = busy_ns() if watched else now_ns
        self.session.receive(portion, now_ns)
        self._worked(len(portion), (busy_ns() if watched else clock_ns()) - begun_ns, now_ns)

    def _worked(self, size: int, took_ns: int, now_ns: int) -> None:
        """A portion of that *size* was applied; before the next one others have their turn."""
        session, portions = self.session, self._portions
        portions.took(size, took_ns)
        if session.stream is not None:
            session.stream += portions.take_all()
            return
        left = bool(portions)
        if left and (session.waits() or session.upgrading or session.closing):
            # What follows is kept there, or lost.
            session.receive(portions.take_all(), now_ns)
            left = False
        long = left or (took_ns > LONG_NS and size >= FIRST)
        # Between a pause and its end no layer may come round the transport: it would not be read any more.
        if long and not session.upgrading and self._transport is not None and not self._working:
            # The loop would read what the client has sent ahead up to 32 times before it looks at others.
            self._working = True
            self._transport.pause_reading()
            self._loop.call_soon(self._work_on)

    def _work_on(self) -> None:
        if self._portions and self._transport is not None:
            self._work()
            self._clients.turn.ask_for(self)
        if self._portions and self._transport is not None:
            self._loop.call_soon(self._work_on)
            return
        self._working = False
        if self._transport is not None:
            self._listen_again()

    def _hand_over(self, data: bytes) -> None:
        """Another node has connected, not a client."""
        transport, keep = self._transport, self._clients.keep
        self._transport = None
        self._heartbeats.end()
        self._clients.connections.pop(self, None)
        self.session.disconnect()
        if transport is not None and keep is not None:
            keep(transport, data)
        elif transport is not None:
            transport.abort()

    def eof_received(self) -> bool:
        if self._portions:
            self.session.receive(self._portions.take_all(), clock_ns())
        self.session.end_of_stream(clock_ns())
        if self.session.waits():
            self._have_it_done()
        self._clients.turn.ask_for(self)
        # Kept open until the turn has sent the last replies.
        return True

    def pause_writing(self) -> None:
        consumer = self.session.consumer
        if consumer is not None:
            # Its answers are still read: some clients send all of those before they read on.
            consumer.blocked = True
        elif self._transport is not None:
            # A producer that reads no replies is not to fill our memory with them.
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
                self._clients.turn.ask()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._portions.take_all()
        self._heartbeats.end()
        if self._asking is not None:
            self._asking.cancel()
        self._clients.connections.pop(self, None)
        self.session.disconnect()
        if exc is not None:
            self._clients.log.info("client(%s) - %s", self.peer, exc)
        self._clients.log.info("PROTOCOL(V2): [%s] exiting ioloop", self.peer)
        self._clients.turn.ask()

    # --- what the turn and the engine's consumers call ---

    def not_stored(self, topic: Topic, reason: str) -> None:
        self.session.not_stored(topic, reason)

    def answer(self) -> None:
        """Send the replies of this turn, and close if that is what they end with."""
        session = self.session
        if self._held:
            # Replies go out in order: these join those that wait.
            return
        self._log_errors()
        transport = self._transport
        if transport is None:
            return
        if session.out:
            transport.write(session.take_replies())
            consumer = session.consumer
            if consumer is not None and consumer.blocked and transport.get_write_buffer_size() > MAX_UNREAD:
                self._clients.log.error("client(%s) - does not read its replies", self.peer)
                transport.abort()
        if session.closing:
            transport.close()
        elif session.upgrading:
            self._upgrade(transport)

    def published(self) -> list[Topic]:
        """The topics that replies of this turn tell of."""
        marks = self.session.marks
        return [marks[0].topic] if len(marks) == 1 else list({mark.topic: None for mark in marks})

    def owed(self) -> int:
        """How many replies are to be sent; more than anybody counts when some wait already."""
        return MANY if self._held else len(self.session.out)

    def hold_answer(self, waiting: int) -> Settle | None:
        """Take the replies of this turn, which wait for so many topics; what is returned is told of each.

        None when they wait for nothing: neither for a topic, nor for replies before them.
        """
        if not (waiting or self._held):
            return None
        self._log_errors()
        part = HeldReplies(self.session, waiting)
        self._held.append(part)
        return partial(self._settle, part)

    def _settle(self, part: HeldReplies, topic: Topic, reason: str) -> None:
        part.settle(topic, reason)
        while self._held and not self._held[0].waiting:
            first = self._held.popleft()
            transport = self._transport
            if transport is None:
                continue
            replies = first.text()
            if replies:
                transport.write(replies)
            if first.closing:
                transport.close()
            elif first.upgrading:
                self._upgrade(transport)

    def send_messages(self, frames: list[Piece]) -> None:
        if self._transport is not None:
            if len(frames) == 1:
                self._transport.write(frames[0])
            else:
                self._transport.writelines(frames)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # --- what commands wait for ---

    @property
    def deaf(self) -> bool:
        """The client is not heard until what it has sent is dealt with: AUTH, a long batch, many commands."""
        return self._asking is not None or self._slicing or self._working

    def _have_it_done(self) -> None:
        """Do what the session waits for, unless that goes on already; nothing is read meanwhile."""
        if self._asking is not None or self._slicing or self._transport is None:
            return
        self._transport.pause_reading()
        if self.session.batch is not None:
            self._slicing = True
            self._loop.call_soon(self._publish_slice)
        else:
            self._asking = self._loop.create_task(self._authorize(), name=f"AUTH {self.peer}")

    async def _authorize(self) -> None:
        """Ask for as long as the session has questions, then go on reading."""
        session = self.session
        while session.query is not None and self._transport is not None:
            asker = asker_at(self._transport, self._host, session.query.secret)
            found = await self._clients.auth.ask(asker, self.peer)
            session.authorized(found, clock_ns())
            self._clients.turn.ask_for(self)
        self._asking = None
        self._listen_again()

    def _publish_slice(self) -> None:
        """Publish so much of a long batch; the others have their turn before the next slice."""
        self.session.go_on(clock_ns())
        self._clients.turn.ask_for(self)
        if self.session.batch is not None:
            self._loop.call_soon(self._publish_slice)
        else:
            self._slicing = False
            self._listen_again()

    def _listen_again(self) -> None:
        # While it could not be heard it was not silent.
        self._heartbeats.heard = self._loop.time()
        session = self.session
        if session.settings is not self._settings:
            self._settings = session.settings
            self._start_timers()
        if session.waits():
            # For what came in the same moment.
            self._have_it_done()
            return
        transport = self._transport
        # A client that does not read its replies is heard when it does: see `resume_writing`.
        if transport is not None and transport.get_write_buffer_size() <= WRITE_BUFFER_HIGH:
            transport.resume_reading()

    # --- upgrades ---

    @property
    def tls(self) -> ssl.SSLObject | None:
        """What the statistics know of TLS."""
        if self._transport is None:
            return None
        return cast("ssl.SSLObject | None", self._transport.get_extra_info("ssl_object"))

    def _upgrade(self, transport: asyncio.Transport) -> None:
        """Put round *transport* what was granted next."""
        if self._upgrades is None:
            self._upgrades = Upgrades(self, self._clients.log, self._clients.tls)
        self._upgrades.next(transport)

    def upgraded(self, transport: asyncio.Transport) -> None:
        """Send through this from now on, and say so through it."""
        self._transport = transport
        session = self.session
        session.upgrade_done()
        transport.write(session.take_replies())
        if session.upgrading:
            self._upgrade(transport)
        else:
            self._start_timers()

    def rest(self) -> None:
        """No heartbeats, while the connection is changed."""
        self._heartbeats.stop()

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
        # A peer this silent may read nothing either: what is still unsent is dropped with it.
        self.session.end_of_stream(clock_ns())
        self.answer()
        if self._transport is not None:
            self._transport.abort()

    def _log_errors(self) -> None:
        errors = self.session.errors
        if errors:
            for sentence in written(errors):
                self._clients.log.error("[%s] - %s", self.peer, sentence)
            errors.clear()


def _keep_for(rate: int) -> Callable[[], bool]:
    """The draw for a sample rate: the original delivers (rate + 1) percent."""
    return lambda: random.randrange(100) <= rate
