"""Publishes to one or several nsqd: every message is confirmed, or its error is raised."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, Self, TypeAlias, TypeVar

from nsqclient.backlog import Backlog
from nsqclient.config import Config
from nsqclient.connection import Connection
from nsqclient.errors import ClosedError, UnsupportedError
from nsqclient.handshake import connect
from nsqclient.listener import Listener
from nsqclient.lookups import Lookups
from nsqclient.middleware import Middleware, Publication, around_publish
from nsqclient.requests import Answer, Confirmation, Publish
from nsqclient.roster import Roster
from nsqclient.threads import PublishOutcome
from nsqclient.wire import commands
from nsqclient.wire.address import address_list, split_address
from nsqclient.wire.durations import seconds_of
from nsqclient.wire.errors import (
    E_BAD_BODY,
    E_BAD_MESSAGE,
    E_DPUB_FAILED,
    E_MPUB_FAILED,
    E_PUB_FAILED,
    ProtocolError,
)
from nsqclient.wire.frames import OK

log = logging.getLogger("nsqclient")

# Pause between two rounds over all addresses, doubling up to the limit.
FIRST_RETRY_SECONDS: Final = 0.1
LAST_RETRY_SECONDS: Final = 2.0

# The node cannot take it (its disk is full, it is leaving), another one may.
_NODE_FAILED: Final = frozenset({E_PUB_FAILED, E_MPUB_FAILED, E_DPUB_FAILED})

# One message of several is not taken; which one is found out by sending each alone.
_ONE_IS_BAD: Final = frozenset({E_BAD_MESSAGE, E_BAD_BODY})

# How soon a producer that spreads tries an nsqd again that it is not connected to.
KEEP_SECONDS: Final = 1.0

# An nsqd that owes an answer for so long is passed over while others are not.
OVERDUE_SECONDS: Final = 0.5

T = TypeVar("T")

Body: TypeAlias = bytes | bytearray | memoryview


class Producer(Listener):
    """Publishes to the first of its nsqd that takes the message.

    It connects when it is first used. A publish returns when nsqd has said OK. When the connection breaks
    before that, the message is sent again, to the next address or after a reconnect, so it may then be there
    twice. With ``retry_seconds`` it keeps trying that long before it raises; otherwise each address is tried
    once. A message that nsqd refuses as such (``ProtocolError``: bad topic, too big) is never tried again.

    With fixed addresses it stays with the one that works; with ``spread`` it uses all of them in turn, and
    passes over those that are slow to answer. With ``lookupd_addresses`` it spreads over all nsqd that
    nsqlookupd knows, newcomers included. An nsqd that owes an answer for ``publish_timeout`` seconds is left,
    and what it did not confirm is sent to another.

    While nsqd is away it keeps ``max_unconfirmed`` messages and ``max_unconfirmed_bytes`` at most; further
    publishes wait. *middlewares* are called around every publish.
    """

    def __init__(
        self,
        *nsqd_addresses: str,
        lookupd_addresses: Sequence[str] | str = (),
        config: Config | None = None,
        retry_seconds: float | timedelta = 0,
        spread: bool = False,
        publish_timeout: float | timedelta = 10,
        max_unconfirmed: int = 10_000,
        max_unconfirmed_bytes: int = 32 << 20,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        lookupds = address_list(lookupd_addresses)
        if not nsqd_addresses and not lookupds:
            raise ValueError("a producer needs addresses of nsqd or of nsqlookupd")
        for address in nsqd_addresses:
            _check_address(address)
        if max_unconfirmed < 1 or max_unconfirmed_bytes < 1:
            raise ValueError("max_unconfirmed and max_unconfirmed_bytes have to be positive")
        self._publish_timeout = seconds_of(publish_timeout)
        if self._publish_timeout <= 0:
            raise ValueError(f"publish_timeout {self._publish_timeout:g} is not positive")
        self.config = config or Config()
        self._lookups = Lookups(lookupds, self.config)
        self._lookup_errors: list[str] = []
        self._spread = spread or bool(lookupds)
        self._retry_seconds = seconds_of(retry_seconds)
        self._max_unconfirmed = max_unconfirmed
        self._fixed = list(dict.fromkeys(nsqd_addresses))
        self._found: list[str] = []  # by nsqlookupd
        self._roster = Roster(self._fixed)
        self._links: dict[str, Connection] = {}
        self._link: Connection | None = None  # the one in use
        self._leaving: set[Connection] = set()  # to nsqd that are gone, until they have answered
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._backlog = Backlog(max_unconfirmed, max_unconfirmed_bytes)
        self._queue: deque[asyncio.Future[None]] = deque()  # publishers that wait for room, in their order
        self._typical_bytes = 1  # of a message of those that wait
        self._changed = asyncio.Event()  # something was confirmed, or a connection changed
        self._tasks: set[asyncio.Task[Any]] = set()
        self._rescue: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._turn_noted = False
        self._discover_at = 0.0
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._closed = False  # takes nothing more
        self._ended = False  # what is not confirmed by now fails
        self._around = around_publish(middlewares, self._publish_plainly) if middlewares else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Producer {', '.join(self._roster.addresses)} {self.unconfirmed} unconfirmed>"

    @property
    def nsqd_address(self) -> str:
        """The nsqd that gets the next message; empty while none is known."""
        return self._link.address if self._link is not None else self._roster.current or ""

    @property
    def nsqd_addresses(self) -> list[str]:
        """Those it is connected to now."""
        return list(self._links)

    @property
    def unconfirmed(self) -> int:
        """Messages under way."""
        return sum(link.waiting for link in (*self._links.values(), *self._leaving)) + self._backlog.messages

    # --- which nsqd

    async def connect_to_nsqd(self, address: str) -> None:
        """Publish to one more nsqd; raises what prevents it, and tries again later."""
        _check_address(address)
        if address not in self._fixed:
            self._fixed.append(address)
            self._update_roster()
        await self._connect(address)

    async def disconnect_from_nsqd(self, address: str) -> None:
        """Publish nothing more to this nsqd, which was named, and wait for what is under way to it."""
        if address not in self._fixed:
            named = ", ".join(self._fixed) or "none"
            raise ValueError(f"{address} is none of the nsqd that were named ({named})")
        self._fixed.remove(address)
        self._update_roster()
        if address not in self._roster and (link := self._links.get(address)):
            await self._retire(link)

    def connect_to_nsqlookupd(self, address: str) -> None:
        """Ask one more nsqlookupd for nsqd."""
        self._lookups.add(address)
        self._spread = True
        self._discover_at = 0.0

    def disconnect_from_nsqlookupd(self, address: str) -> None:
        """Do not ask it any more; the nsqd that only it has named are left."""
        self._lookups.remove(address)
        self._discover_at = 0.0
        if not self._lookups:
            self._found = []
            self._update_roster()

    # --- publishing

    async def publish(
        self,
        topic: str,
        body: Body,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | timedelta | None = None,
    ) -> None:
        """Publish one message and wait for its confirmation.

        After *timeout* seconds TimeoutError is raised. The message may be published all the same: what was
        sent cannot be called back.
        """
        if timeout is None and headers is None and self._around is None:
            await (await self.submit(topic, body))
            return
        async with asyncio.timeout(_seconds(timeout)):
            await self._go(Publication(topic, [body_bytes(body)], headers=dict(headers or {})))

    async def multi_publish(
        self,
        topic: str,
        bodies: Sequence[Body],
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | timedelta | None = None,
    ) -> None:
        """Publish several messages, all or none, and wait for their confirmation."""
        async with asyncio.timeout(_seconds(timeout)):
            publication = Publication(topic, _bodies(bodies), headers=dict(headers or {}), together=True)
            await self._go(publication)

    async def deferred_publish(
        self,
        topic: str,
        body: Body,
        delay: float | timedelta,
        *,
        timeout: float | timedelta | None = None,
    ) -> None:
        """Publish one message that is delivered after *delay* seconds at the earliest."""
        async with asyncio.timeout(_seconds(timeout)):
            await self._go(Publication(topic, [body_bytes(body)], delay=seconds_of(delay)))

    async def submit(
        self, topic: str, body: Body, *, headers: Mapping[str, str] | None = None
    ) -> Confirmation:
        """Send one message without waiting; the future that is returned ends when it is confirmed, or fails.

        This itself waits only while too much is unconfirmed, so that memory stays bounded. What is submitted
        to one topic in the same moment goes out as one MPUB, and still each message has its own outcome.
        """
        if body.__class__ is not bytes:
            body = body_bytes(body)
        if not body:
            raise ValueError("a message must not be empty")
        if self._around is not None or headers:
            publication = Publication(topic, [body], headers=dict(headers or {}))
            if self._around is None:
                return await self._submit(publication)
            return self._spawn_quietly(self._go(publication), "publish")
        link = self._link
        if link is None or link.is_full or link.is_closed or self._backlog or self._queue or self._closed:
            link = await self._ready(len(body))
            if link is None:
                answer: Confirmation = asyncio.get_running_loop().create_future()
                self._put_off(Publish.of(topic, body, answer))
                return answer
        if self._spread and not self._turn_noted:
            self._note_turn()
        return link.submit(topic, body)

    def offer(self, topic: str, body: bytes, answer: Answer) -> bool:
        """Like :meth:`submit`, with an outcome made elsewhere; False when that has to wait for room."""
        if self._closed:
            raise ClosedError("the producer is closed")
        if self._around is not None:
            work = self._spawn_quietly(self._around(Publication(topic, [body])), "publish")
            work.add_done_callback(partial(_pass_on, answer))
            return True
        link = self._link
        if link is None or link.is_full or link.is_closed or self._backlog or self._queue:
            link, room = self._place()
            if not room:
                return False
            if link is None:
                self._put_off(Publish.of(topic, body, answer))
                return True
        if self._spread and not self._turn_noted:
            self._note_turn()
        link.publish(topic, body, answer)
        return True

    async def wait_for_room(self, size: int) -> None:
        """Wait until a message of this size is taken; ClosedError when none will be."""
        await self._ready(size)

    async def submit_many(self, topic: str, bodies: Sequence[Body]) -> Confirmation:
        """Like :meth:`submit`, for several messages of which nsqd takes all or none."""
        publication = Publication(topic, _bodies(bodies), together=True)
        if self._around is not None:
            return self._spawn_quietly(self._around(publication), "publish")
        return await self._submit(publication)

    async def submit_deferred(self, topic: str, body: Body, delay: float | timedelta) -> Confirmation:
        """Like :meth:`submit`, for one message that is delivered after *delay* seconds at the earliest."""
        publication = Publication(topic, [body_bytes(body)], delay=seconds_of(delay))
        if self._around is not None:
            return self._spawn_quietly(self._around(publication), "publish")
        return await self._submit(publication)

    async def ping(self, *, timeout: float | timedelta | None = None) -> None:
        """Connect if need be, or raise what prevents it; for checking settings before the first publish."""
        if self._closed:
            raise ClosedError("the producer is closed")
        async with asyncio.timeout(_seconds(timeout)):
            if self._link is None or self._link.is_closed:
                self._link = await self._connect_any()
        self._link.send(commands.NOP)

    async def flush(self, *, timeout: float | timedelta | None = None) -> None:
        """Wait until nothing is under way that somebody waits for; errors are in the futures of submit()."""
        async with asyncio.timeout(_seconds(timeout)):
            while pending := self._pending():
                await asyncio.wait([_awaitable(answer) for answer in pending])

    async def close(self, drain_seconds: float | timedelta = 30) -> None:
        """Wait for the publishes under way, that long at most, and hang up; what is then left fails."""
        if self._closed:
            return
        self._closed = True
        self._wake_all()
        try:
            await self.flush(timeout=drain_seconds)
        except TimeoutError:
            log.warning(
                "%d publishes were not confirmed in %g s", self.unconfirmed, seconds_of(drain_seconds)
            )
        finally:
            self._ended = True
            tasks = [*self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._backlog.fail(ClosedError("the producer was closed before this was confirmed"))
            links = [*self._links.values(), *self._leaving]
            await asyncio.gather(*(link.close() for link in links))

    # --- the common path

    async def _go(self, publication: Publication) -> None:
        if self._around is not None:
            publication.takes_headers = self.config.headers
            await self._around(publication)
        else:
            await self._publish_plainly(publication)

    async def _publish_plainly(self, publication: Publication) -> None:
        await (await self._submit(publication))

    async def _submit(self, publication: Publication) -> Confirmation:
        answer: Confirmation = asyncio.get_running_loop().create_future()
        publish = self._publish_of(publication, answer)
        link = await self._ready(publish.size // publish.count)
        if link is None:
            self._put_off(publish)
        else:
            if self._spread and not self._turn_noted:
                self._note_turn()
            self._entrust(link, publish)
        return answer

    def _publish_of(self, publication: Publication, answer: Confirmation) -> Publish:
        topic, bodies, headers = publication.topic, publication.bodies, publication.headers
        if headers and not self.config.headers:
            raise UnsupportedError("headers are published with Config(headers=True) only")
        if headers and publication.delay:
            raise UnsupportedError("a deferred message cannot have headers")
        if publication.delay:
            delay_ms = round(seconds_of(publication.delay) * 1000)
            return Publish(commands.dpub(topic, bodies[0], delay_ms), [answer])
        if publication.together:
            command = commands.mpub_ext(topic, bodies, headers) if headers else commands.mpub(topic, bodies)
            return Publish(command, [answer], count=len(bodies), has_headers=bool(headers))
        if headers:
            return Publish(commands.pub_ext(topic, bodies[0], headers), [answer], has_headers=True)
        return Publish(commands.pub(topic, bodies[0]), [answer])

    def _entrust(self, link: Connection, publish: Publish) -> None:
        if publish.has_headers and not link.negotiated.extend_support:
            publish.fail(UnsupportedError(f"{link.address} does not take headers"))
        else:
            link.entrust(publish)

    async def _ready(self, size: int) -> Connection | None:
        """Wait for room on a connection; None when there is none, but room in the backlog."""
        came_again = False
        while True:
            if self._closed:
                raise ClosedError("the producer is closed")
            # Whoever waits already comes first.
            if came_again or not self._queue:
                link, room = self._place()
                if room:
                    return link
            self._typical_bytes = max(1, size)
            await self._wait_for_room(again=came_again)
            came_again = True

    def _place(self) -> tuple[Connection | None, bool]:
        """The connection for the next message, or None and whether there is room in the backlog."""
        if self._backlog:
            return None, self._backlog.has_room
        if (link := self._usable()) is not None:
            return link, True
        return None, all(link.is_closed for link in self._links.values())

    async def _wait_for_room(self, *, again: bool) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if again:
            self._queue.appendleft(waiter)
        else:
            self._queue.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self._wake(1)  # the place that was meant for this one
            raise

    def _usable(self) -> Connection | None:
        """The connection for the next message: one with room, and well if there is such a one."""
        if not self._spread:
            link = self._link
            return None if link is None or link.is_closed or link.is_full else link
        late: Connection | None = None
        now = self._now()
        links = list(self._links.values())
        at = links.index(self._link) if self._link in links else 0
        for link in links[at:] + links[:at]:
            if not link.is_closed and not link.is_full:
                if link.owed_for <= OVERDUE_SECONDS and self._roster.is_well(link.address, now):
                    self._link = link
                    return link
                late = late or link
        if late is not None:
            self._link = late
        return late

    def _note_turn(self) -> None:
        self._turn_noted = True
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """What comes in the next turn of the event loop goes to the next nsqd that is well."""
        self._turn_noted = False
        links = list(self._links.values())
        if len(links) > 1 and self._link in links:
            at = links.index(self._link)
            self._link = links[(at + 1) % len(links)]
            self._usable()

    def _wake(self, most: int | None = None) -> None:
        """Let as many of those who wait go on as there is room for, about."""
        self._changed.set()
        if not self._queue:
            return
        if most is None:
            most = self._places()
        while most > 0 and self._queue:
            waiter = self._queue.popleft()
            if not waiter.done():
                waiter.set_result(None)
                most -= 1

    def _places(self) -> int:
        open_links = [] if self._backlog else [link for link in self._links.values() if not link.is_closed]
        places = 0
        for messages, size in [link.room for link in open_links] or [self._backlog.room]:
            places += min(messages, size // self._typical_bytes + 1 if size else 0)
        return places

    def _wake_all(self) -> None:
        self._wake(len(self._queue))

    def _pending(self) -> list[Answer]:
        """What is not answered and has somebody who waits for it."""
        links = (*self._links.values(), *self._leaving)
        return [answer for link in links for answer in link.answers] + [
            answer for publish in self._backlog for answer in publish.answers if not answer.done()
        ]

    # --- listener of the connections

    def requests_answered(self, connection: Connection) -> None:
        self._roster.succeeded(connection.address)
        self._wake()

    def connection_lost(self, connection: Connection, error: Exception | None) -> None:
        if self._links.get(connection.address) is connection:
            del self._links[connection.address]
        if self._link is connection:
            self._link = next(iter(self._links.values()), None) if self._spread else None
        if error is not None and not connection.was_refused:
            log.warning("(%s) %s", connection.address, error)
            self._roster.failed(connection.address, self._now())
        self._wake()

    def publishes_lost(self, connection: Connection, publishes: list[Publish]) -> None:
        reason = connection.failure or ClosedError("the producer was closed before this was confirmed")
        for publish in publishes:
            # Behind a message that was refused it is no try: there may be many such messages.
            self._lost(publish, reason, tries=0 if connection.was_refused else 1)

    def publish_refused(self, connection: Connection, publish: Publish, error: ProtocolError) -> None:
        if error.code in _NODE_FAILED:
            self._roster.failed(connection.address, self._now())
            self._ask_at_once()
            self._lost(publish, error, tries=1)
            return
        connection.was_refused = True
        parts = publish.split() if error.code in _ONE_IS_BAD else [publish]
        if len(parts) == 1:
            publish.fail(error)
        for part in parts:
            if not part.is_settled:
                self._lost(part, error, tries=0)

    # --- when something goes wrong

    def _put_off(self, publish: Publish) -> None:
        """Keep a publish until there is a connection for it."""
        if publish.give_up_at is None:
            publish.give_up_at = self._now() + self._retry_seconds
        self._backlog.append(publish)
        if self._rescue is None or self._rescue.done():
            self._rescue = self._spawn(self._work_off(), "producer backlog")

    def _lost(self, publish: Publish, error: Exception, tries: int) -> None:
        """What was sent was not confirmed: it is sent again unless that was tried often enough."""
        publish.tries += tries
        publish.error = error
        if self._ended:
            publish.fail(ClosedError("the producer was closed before this was confirmed"))
        elif not publish.is_settled:
            self._put_off(publish)

    async def _work_off(self) -> None:
        """Find a connection for the backlog, round after round, until each of it is sent or has failed."""
        try:
            await self._send_backlog()
        except Exception as error:
            self._backlog.fail(error)  # a mistake of ours must not leave anybody waiting
            raise
        finally:
            self._wake()

    async def _send_backlog(self) -> None:
        pause = FIRST_RETRY_SECONDS
        while True:
            await self._ask_before_giving_up()
            # One more than there are addresses: the first may be spent on a connection that was dead already.
            exhausted = self._backlog.give_up(len(self._roster) + 1, self._now() + pause)
            self._wake()
            if exhausted:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LAST_RETRY_SECONDS)
            if not self._backlog:
                return
            try:
                self._link = await self._connect_any()
            except (OSError, ProtocolError) as error:
                self._backlog.tried(error)
                continue
            await self._hand_over_backlog()

    async def _hand_over_backlog(self) -> None:
        """Send what waits as far as the connections take it; all at once could be a hundred megabytes."""
        while self._backlog:
            self._changed.clear()
            link = self._usable()
            if link is not None:
                publish = self._backlog.popleft()
                if not publish.is_settled:
                    self._entrust(link, publish)
                continue
            if not any(not link.is_closed for link in self._links.values()):
                return
            self._wake()
            self._changed.clear()
            await self._changed.wait()

    # --- connections

    async def _connect_any(self) -> Connection:
        """A connection to the best address there is; the error of that one when it fails."""
        if self._lookups and not len(self._roster):
            await self._discover()
        if self._spread:
            if self._keeper is None or self._keeper.done():
                self._keeper = self._spawn(self._keep_connected(), "producer connections")
            well = [
                link
                for link in self._links.values()
                if not link.is_closed and self._roster.is_well(link.address, self._now())
            ]
            if well:
                return min(well, key=lambda link: link.owed_for > OVERDUE_SECONDS)
        address = self._roster.pick(self._now())
        if address is None:
            raise ConnectionError("; ".join(self._lookup_errors) or "nsqlookupd knows no nsqd")
        return await self._connect(address)

    async def _connect(self, address: str) -> Connection:
        if link := self._links.get(address):
            if not link.is_closed:
                return link
            await link.ended()  # it was refused something, and its end is near
        return await asyncio.shield(self._opening(address))

    def _opening(self, address: str) -> asyncio.Task[Connection]:
        """Of many that need a connection only one opens it, the others use it."""
        opening = self._connecting.get(address)
        if opening is None:
            opening = self._connecting[address] = self._spawn(self._open(address), f"connect to {address}")
        return opening

    async def _open(self, address: str) -> Connection:
        try:
            link = await connect(address, self.config, self, self._publish_timeout)
        except (OSError, ProtocolError):
            self._roster.failed(address, self._now())
            self._discover_at = self._now()  # it may be gone for good
            raise
        finally:
            del self._connecting[address]
        link.most_waiting = self._max_unconfirmed
        self._links[address] = link
        log.info("publishing to %s from now on", address)
        self._wake()
        return link

    async def _keep_connected(self) -> None:
        """Connect to every nsqd there is, newcomers included, and leave those that are gone."""
        while True:
            now = self._now()
            for address in self._roster.addresses:
                # Nobody waits for it: one that does not answer must not keep the others from being used.
                if address not in self._links and self._roster.is_well(address, now):
                    self._opening(address)
            for address, link in list(self._links.items()):
                if address not in self._roster:
                    self._retire(link)
            await asyncio.sleep(min(self.config.lookupd_poll_interval, KEEP_SECONDS))
            if self._lookups and self._now() >= self._discover_at:
                await self._discover()

    async def _discover(self) -> None:
        """Ask all nsqlookupd which nsqd there are; nobody is forgotten because one of them did not answer."""
        self._asked_at = self._now()
        jitter = 1 + random.random() * self.config.lookupd_poll_jitter
        self._discover_at = self._now() + self.config.lookupd_poll_interval * jitter
        found, self._lookup_errors = await self._lookups.nsqds_to_publish_to()
        if self._lookup_errors:
            found = list(dict.fromkeys([*self._found, *found]))
        # Producers that start together must not all begin with the same nsqd.
        random.shuffle(found)
        self._found = found
        self._update_roster()

    def _ask_at_once(self) -> None:
        """An nsqd that refuses messages may be leaving: ask which others there are, once a second at most."""
        waits = self._asking is not None and not self._asking.done()
        if self._lookups and not waits and self._now() - self._asked_at >= KEEP_SECONDS:
            self._asking = self._spawn(self._discover(), "ask nsqlookupd")

    async def _ask_before_giving_up(self) -> None:
        """Before a publish fails, nsqlookupd is asked once who is there now, and these get another try.

        Those that came back since it was asked last are still unknown, or rest because they were away.
        """
        most_tries = len(self._roster) + 1
        # Once for each, or a publish that everybody refuses would be kept for ever.
        failing = [each for each in self._backlog if each.tries >= most_tries and not each.asked]
        if not self._lookups or not failing:
            return
        if self._asking is not None and not self._asking.done():
            await asyncio.wait([self._asking])
        else:
            await self._discover()
        self._roster.end_rests()
        for publish in failing:
            publish.tries, publish.asked = 0, True

    def _update_roster(self) -> None:
        self._roster.update([*self._fixed, *self._found])

    def _retire(self, link: Connection) -> asyncio.Task[None]:
        del self._links[link.address]
        self._leaving.add(link)
        if self._link is link:
            self._link = next(iter(self._links.values()), None)
        return self._spawn(self._leave(link), f"leave {link.address}")

    async def _leave(self, link: Connection) -> None:
        try:
            if answers := link.answers:
                await asyncio.wait([_awaitable(answer) for answer in answers])
        finally:
            await link.close()
            self._leaving.discard(link)
            self._wake()

    def _spawn_quietly(self, work: Awaitable[None], name: str) -> Confirmation:
        """The outcome of something that nobody may wait for."""

        async def outcome() -> bytes:
            await work
            return OK

        task = asyncio.create_task(outcome(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended_task)
        return task

    def _ended_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        # A connection that failed to open is told to those who wait for it.
        if error is not None and not isinstance(error, OSError | ProtocolError):
            log.critical("%s ended", task.get_name(), exc_info=error)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _check_address(address: object) -> None:
    if not isinstance(address, str):
        raise TypeError(f"an address is text, as in Producer('a:4150', 'b:4150'), not {address!r}")
    split_address(address)


def body_bytes(body: object) -> bytes:
    """A body as bytes that cannot change any more."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    if isinstance(body, str):
        raise TypeError("a body is bytes, not text: encode it, as in text.encode()")
    raise TypeError(f"a body is bytes, not {type(body).__name__}")


def _bodies(bodies: Sequence[Body]) -> list[bytes]:
    if isinstance(bodies, bytes | bytearray | memoryview | str):
        raise TypeError("several bodies are a list of bytes")
    return [body_bytes(body) for body in bodies]


def _seconds(timeout: float | timedelta | None) -> float | None:
    return None if timeout is None else seconds_of(timeout)


def _awaitable(answer: Answer) -> asyncio.Future[Any]:
    return asyncio.wrap_future(answer) if isinstance(answer, PublishOutcome) else answer


def _pass_on(answer: Answer, work: Confirmation) -> None:
    if answer.done():
        return
    if work.cancelled():
        answer.cancel()
    elif (error := work.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(OK)
