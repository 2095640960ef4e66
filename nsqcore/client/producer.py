"""Publishes to one or several nsqd: every message is confirmed, or its error is raised."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Self, TypeVar

from nsqcore.client.config import Config
from nsqcore.client.connection import Connection, Listener
from nsqcore.client.errors import ClosedError, ConnectionLostError
from nsqcore.client.handshake import connect
from nsqcore.client.requests import Confirmation, Publish
from nsqcore.client.roster import Roster
from nsqcore.cluster.discovery import LookupdDiscovery
from nsqcore.cluster.http import ClusterHttp
from nsqcore.wire import commands
from nsqcore.wire.address import split_address
from nsqcore.wire.errors import (
    E_BAD_BODY,
    E_BAD_MESSAGE,
    E_DPUB_FAILED,
    E_MPUB_FAILED,
    E_PUB_FAILED,
    ProtocolError,
)

log = logging.getLogger("nsqcore.client")

# Pause between two rounds over all addresses, doubling up to the limit.
FIRST_RETRY_SECONDS: Final = 0.1
LAST_RETRY_SECONDS: Final = 2.0

# The node cannot take it (its disk is full, it is leaving), another one may.
_NODE_FAILED: Final = frozenset({E_PUB_FAILED, E_MPUB_FAILED, E_DPUB_FAILED})

# One message of several is not taken; which one is found out by sending each alone.
_ONE_IS_BAD: Final = frozenset({E_BAD_MESSAGE, E_BAD_BODY})

# How soon a producer that spreads tries an nsqd again that it is not connected to.
KEEP_SECONDS: Final = 1.0

T = TypeVar("T")


class Producer(Listener):
    """Publishes to the first of its nsqd that takes the message.

    It connects when it is first used. A publish returns when nsqd has said OK. When the connection breaks
    before that, the message is sent again, to the next address or after a reconnect, so it may then be there
    twice. With ``retry_seconds`` it keeps trying that long before it raises; otherwise each address is tried
    once. A message that nsqd refuses as such (``ProtocolError``: bad topic, too big) is never tried again.

    With fixed addresses it stays with the one that works; with ``spread`` it uses all of them in turn. With
    ``lookupd_addresses`` it spreads over all nsqd that nsqlookupd knows, newcomers included.
    """

    def __init__(
        self,
        *nsqd_addresses: str,
        lookupd_addresses: Sequence[str] = (),
        config: Config | None = None,
        retry_seconds: float = 0,
        spread: bool = False,
        max_unconfirmed: int = 10_000,
    ) -> None:
        if bool(nsqd_addresses) == bool(lookupd_addresses):
            raise ValueError("a producer needs at least one nsqd address, or else nsqlookupd addresses")
        for address in (*nsqd_addresses, *lookupd_addresses):
            split_address(address)
        if max_unconfirmed < 1:
            raise ValueError(f"max_unconfirmed {max_unconfirmed} is not positive")
        self.config = config or Config()
        self._lookupd_addresses = tuple(lookupd_addresses)
        self._spread = spread or bool(lookupd_addresses)
        self._retry_seconds = retry_seconds
        self._max_unconfirmed = max_unconfirmed
        self._roster = Roster(nsqd_addresses)
        self._links: dict[str, Connection] = {}
        self._link: Connection | None = None  # the one in use
        self._leaving: set[Connection] = set()  # to nsqd that are gone, until they have answered
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._backlog: deque[Publish] = deque()  # without a connection at the moment
        self._room = asyncio.Event()  # something was confirmed, or the connection changed
        self._tasks: set[asyncio.Task[Any]] = set()
        self._rescue: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._turn_noted = False
        self._discover_at = 0.0
        self._closed = False  # takes nothing more
        self._ended = False  # what is not confirmed by now fails

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
        """Publishes under way."""
        waiting = sum(link.waiting for link in (*self._links.values(), *self._leaving))
        return waiting + sum(len(publish.answers) for publish in self._backlog)

    # --- publishing

    async def publish(self, topic: str, body: bytes) -> None:
        """Publish one message and wait for its confirmation."""
        await (await self.submit(topic, body))

    async def multi_publish(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish several messages, all or none, and wait for their confirmation."""
        await (await self.submit_many(topic, bodies))

    async def deferred_publish(self, topic: str, body: bytes, delay: float) -> None:
        """Publish one message that is delivered after *delay* seconds at the earliest."""
        await (await self.submit_deferred(topic, body, delay))

    async def submit(self, topic: str, body: bytes) -> Confirmation:
        """Send one message without waiting; the future that is returned ends when it is confirmed, or fails.

        This itself waits only while too much is unconfirmed, so that memory stays bounded. What is submitted
        to one topic in the same moment goes out as one MPUB, and still each message has its own outcome.
        """
        if body.__class__ is not bytes:
            body = bytes(memoryview(body))  # refuses text; what can change later is copied
        if not body:
            raise ValueError("a message must not be empty")
        link = self._link
        if link is None or link.is_full or link.is_closed or self._backlog or self._closed:
            link = await self._ready()
            if link is None:
                answer: Confirmation = asyncio.get_running_loop().create_future()
                self._put_off(Publish.of(topic, body, answer))
                return answer
        if self._spread and not self._turn_noted:
            self._note_turn()
        return link.publish(topic, body)

    async def submit_many(self, topic: str, bodies: Sequence[bytes]) -> Confirmation:
        """Like :meth:`submit`, for several messages of which nsqd takes all or none."""
        return await self._submit(commands.mpub(topic, bodies))

    async def submit_deferred(self, topic: str, body: bytes, delay: float) -> Confirmation:
        """Like :meth:`submit`, for one message that is delivered after *delay* seconds at the earliest."""
        return await self._submit(commands.dpub(topic, body, round(delay * 1000)))

    async def ping(self) -> None:
        """Connect if need be, or raise what prevents it; for checking settings before the first publish."""
        if self._closed:
            raise ClosedError("the producer is closed")
        if self._link is None or self._link.is_closed:
            self._link = await self._connect_any()
        self._link.send(commands.NOP)

    async def flush(self) -> None:
        """Wait until nothing is under way; errors are in the futures that submit() returned."""
        while self.unconfirmed:
            self._room.clear()
            await self._room.wait()

    async def close(self, drain_seconds: float = 30) -> None:
        """Wait for the publishes under way, that long at most, and hang up; what is then left fails."""
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(drain_seconds):
                await self.flush()
        except TimeoutError:
            log.warning("%d publishes were not confirmed in %g s", self.unconfirmed, drain_seconds)
        finally:
            self._ended = True
            tasks = [*self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._fail_backlog(ClosedError("the producer was closed before this was confirmed"))
            await asyncio.gather(*(link.close() for link in list(self._links.values())))

    # --- the common path

    async def _submit(self, command: bytes) -> Confirmation:
        answer: Confirmation = asyncio.get_running_loop().create_future()
        publish = Publish(command, [answer])
        link = await self._ready()
        if link is None:
            self._put_off(publish)
        else:
            if self._spread and not self._turn_noted:
                self._note_turn()
            link.entrust(publish)
        return answer

    async def _ready(self) -> Connection | None:
        """Wait for room on the connection in use; None when there is none, but room in the backlog."""
        while True:
            if self._closed:
                raise ClosedError("the producer is closed")
            link = self._link
            if link is None or link.is_closed or self._backlog:
                if len(self._backlog) < self._max_unconfirmed:
                    return None
            elif not link.is_full:
                return link
            self._room.clear()
            await self._room.wait()

    def _note_turn(self) -> None:
        self._turn_noted = True
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """What comes in the next turn of the event loop goes to the next nsqd."""
        self._turn_noted = False
        links = list(self._links.values())
        if len(links) > 1 and self._link in links:
            at = links.index(self._link)
            self._link = links[(at + 1) % len(links)]

    # --- listener of the connections

    def requests_answered(self, connection: Connection) -> None:
        self._roster.succeeded(connection.address)
        self._room.set()

    def connection_lost(self, connection: Connection, error: Exception | None) -> None:
        if self._links.get(connection.address) is connection:
            del self._links[connection.address]
        if self._link is connection:
            self._link = next(iter(self._links.values()), None) if self._spread else None
        if error is not None and not connection.was_refused:
            log.warning("(%s) %s", connection.address, error)
            self._roster.failed(connection.address, self._now())
        self._room.set()

    def publishes_lost(self, connection: Connection, publishes: list[Publish]) -> None:
        reason = connection.failure or ClosedError("the producer was closed before this was confirmed")
        for publish in publishes:
            # Behind a message that was refused it is no try: there may be many such messages.
            self._lost(publish, reason, tries=0 if connection.was_refused else 1)

    def publish_refused(self, connection: Connection, publish: Publish, error: ProtocolError) -> None:
        if error.code in _NODE_FAILED:
            self._roster.failed(connection.address, self._now())
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

    def _fail_backlog(self, error: Exception) -> None:
        for publish in self._backlog:
            publish.fail(error)
        self._backlog.clear()
        self._room.set()

    async def _work_off(self) -> None:
        """Find a connection for the backlog, round after round, until each of it is sent or has failed."""
        try:
            await self._send_backlog()
        except Exception as error:
            self._fail_backlog(error)  # a mistake of ours must not leave anybody waiting
            raise

    async def _send_backlog(self) -> None:
        pause = FIRST_RETRY_SECONDS
        while True:
            # One more than there are addresses: the first may be spent on a connection that was dead already.
            if self._give_up(most_tries=len(self._roster) + 1, pause=pause):
                await asyncio.sleep(pause)
                pause = min(pause * 2, LAST_RETRY_SECONDS)
            if not self._backlog:
                return
            try:
                self._link = await self._connect_any()
            except (OSError, ProtocolError) as error:
                for publish in self._backlog:
                    publish.tries += 1
                    publish.error = error
                continue
            backlog, self._backlog = self._backlog, deque()
            for publish in backlog:
                self._link.entrust(publish)
            self._room.set()

    def _give_up(self, most_tries: int, pause: float) -> bool:
        """Fail what was tried often enough and has no time left; return whether the rest is to wait."""
        kept: deque[Publish] = deque()
        exhausted = False
        for publish in self._backlog:
            if publish.is_settled:
                continue
            if publish.tries < most_tries:
                kept.append(publish)
            elif publish.give_up_at is None or self._now() + pause > publish.give_up_at:
                publish.fail(publish.error or ConnectionLostError("no nsqd is known"))
            else:
                publish.tries = 0
                exhausted = True
                kept.append(publish)
        self._backlog = kept
        self._room.set()
        return exhausted

    # --- connections

    async def _connect_any(self) -> Connection:
        """A connection to the best address there is; the error of that one when it fails."""
        if self._lookupd_addresses and not len(self._roster):
            await self._discover()
        if self._spread:
            if self._keeper is None or self._keeper.done():
                self._keeper = self._spawn(self._keep_connected(), "producer connections")
            for link in self._links.values():
                if not link.is_closed and self._roster.is_well(link.address, self._now()):
                    return link
        address = self._roster.pick(self._now())
        if address is None:
            raise ConnectionError(f"{', '.join(self._lookupd_addresses)} knows no nsqd")
        return await self._connect(address)

    async def _connect(self, address: str) -> Connection:
        if link := self._links.get(address):
            return link
        return await asyncio.shield(self._opening(address))

    def _opening(self, address: str) -> asyncio.Task[Connection]:
        """Of many that need a connection only one opens it, the others use it."""
        opening = self._connecting.get(address)
        if opening is None:
            opening = self._connecting[address] = self._spawn(self._open(address), f"connect to {address}")
        return opening

    async def _open(self, address: str) -> Connection:
        try:
            link = await connect(address, self.config, self)
        except (OSError, ProtocolError):
            self._roster.failed(address, self._now())
            self._discover_at = self._now()  # it may be gone for good
            raise
        finally:
            del self._connecting[address]
        link.most_waiting = self._max_unconfirmed
        self._links[address] = link
        log.info("publishing to %s from now on", address)
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
            if self._lookupd_addresses and self._now() >= self._discover_at:
                await self._discover()

    async def _discover(self) -> None:
        """Ask all nsqlookupd which nsqd there are; nobody is forgotten because one of them did not answer."""
        jitter = 1 + random.random() * self.config.lookupd_poll_jitter
        self._discover_at = self._now() + self.config.lookupd_poll_interval * jitter
        async with ClusterHttp(request_timeout=self.config.lookupd_poll_timeout) as http:
            answer = await LookupdDiscovery(http, self._lookupd_addresses).producers()
        found = [node.tcp_address for node in answer.value]
        for error in answer.errors:
            log.error("error querying nsqlookupd (%s) - %s", error.address, error)
        if answer.errors:
            found = list(dict.fromkeys([*self._roster.addresses, *found]))
        # Producers that start together must not all begin with the same nsqd.
        random.shuffle(found)
        self._roster.update(found)

    def _retire(self, link: Connection) -> None:
        del self._links[link.address]
        self._leaving.add(link)
        if self._link is link:
            self._link = next(iter(self._links.values()), None)
        self._spawn(self._leave(link), f"leave {link.address}")

    async def _leave(self, link: Connection) -> None:
        try:
            if link.last is not None:
                await asyncio.wait([link.last])
        finally:
            await link.close()
            self._leaving.discard(link)
            self._room.set()

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
