"""Sends publishes to a connection, queues them in the backlog without one, or fails them."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from nsqclient._backlog import Backlog, FullTopics
from nsqclient._config import Config
from nsqclient._connection import Connection
from nsqclient._errors import ClosedError, UnsupportedError
from nsqclient._listener import Listener
from nsqclient._middleware import Publication
from nsqclient._producer_links import ProducerLinks
from nsqclient._requests import Answer, Confirmation, Publish, RequestQueue, publish_of
from nsqclient._tasks import Tasks
from nsqclient.wire.errors import (
    E_BAD_BODY,
    E_BAD_MESSAGE,
    E_DPUB_FAILED,
    E_MPUB_FAILED,
    E_PUB_FAILED,
    ProtocolError,
)

log = logging.getLogger("nsqclient")

# The pause between two rounds over all addresses doubles from the first to the last.
FIRST_RETRY_SECONDS: Final = 0.1
LAST_RETRY_SECONDS: Final = 2.0

# This node cannot take the message (full disk, decommission); another node may.
_NODE_FAILED: Final = frozenset({E_PUB_FAILED, E_MPUB_FAILED, E_DPUB_FAILED})

# One of these failures concerns a single topic: a policy of this nsqd limits it. Other topics have room.
_TOPIC_IS_FULL: Final = "topic is full"

# One of several messages is refused; sending each alone shows which.
_ONE_IS_BAD: Final = frozenset({E_BAD_MESSAGE, E_BAD_BODY})


class Dispatch(Listener):
    """The publishes of one producer. Each ends with a confirmation or an error."""

    def __init__(
        self,
        config: Config,
        *,
        nsqds: Sequence[str],
        lookupds: Sequence[str],
        spread: bool,
        publish_timeout: float,
        retry_seconds: float,
        max_messages: int,
        max_bytes: int,
    ) -> None:
        self._with_headers = config.headers
        self._retry_seconds = retry_seconds
        self.tasks = Tasks()
        self.links = ProducerLinks(
            self,
            config,
            self._wake,
            nsqds=nsqds,
            lookupds=lookupds,
            spread=spread,
            publish_timeout=publish_timeout,
            max_waiting=max_messages,
        )
        self.backlog = Backlog(max_messages, max_bytes)
        self.full_topics = FullTopics(
            self.tasks, self.enqueue, max_messages=max_messages, max_bytes=max_bytes
        )
        self.queue: deque[asyncio.Future[None]] = deque()  # publishers that wait for room, in order
        self._typical_bytes = 1  # the size of a message that waits
        self._changed = asyncio.Event()  # something was confirmed, or a connection changed
        self._rescue: asyncio.Task[None] | None = None
        self.closed = False  # takes no more publishes
        self.has_ended = False  # unconfirmed publishes fail from now on

    @property
    def unconfirmed(self) -> int:
        """The number of messages that are sent, or wait to be sent, and are not confirmed yet."""
        return sum(queue.messages for queue in self._requests)

    @property
    def _requests(self) -> list[RequestQueue[Any]]:
        return [*(link.under_way for link in self.links.all), self.backlog, self.full_topics.refused]

    def check_open(self) -> None:
        """Raise ClosedError when no more publishes are taken."""
        if self.closed:
            raise ClosedError("the producer is closed")

    async def submit(self, publication: Publication, *, accepted: bool = False) -> Confirmation:
        """Send the publication or put it into the backlog; waits for room in either.

        One that was *accepted* before the producer was closed is still sent while it drains.
        """
        answer: Confirmation = asyncio.get_running_loop().create_future()
        publish = publish_of(publication, answer, with_headers=self._with_headers)
        link = await self.ready(publish.size // publish.count, accepted=accepted)
        if link is None:
            self.enqueue(publish)
        else:
            if self.links.spread and not self.links.turn_noted:
                self.links.note_turn()
            self._entrust(link, publish)
        return answer

    def _entrust(self, link: Connection, publish: Publish) -> None:
        if publish.has_headers and not link.negotiated.extend_support:
            publish.fail(UnsupportedError(f"{link.address} does not take headers"))
        else:
            link.entrust(publish)

    async def ready(self, size: int, *, accepted: bool = False) -> Connection | None:
        """Wait for room on the connection that is returned, or, when None is returned, in the backlog."""
        came_again = False
        while True:
            if self.has_ended or not accepted:
                self.check_open()
            # Publishers that wait already come first.
            if came_again or not self.queue:
                link, room = self.next_connection()
                if room:
                    return link
            self._typical_bytes = max(1, size)
            await self._wait_for_room(again=came_again)
            came_again = True

    def next_connection(self) -> tuple[Connection | None, bool]:
        """The connection for the next message, or None and whether there is room in the backlog."""
        if self.backlog:
            return None, not self.backlog.is_full
        if (link := self.links.usable()) is not None:
            return link, True
        return None, not self.links.in_use

    async def _wait_for_room(self, *, again: bool) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if again:
            self.queue.appendleft(waiter)
        else:
            self.queue.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self._wake(1)  # its slot goes to the next publisher
            raise

    def _wake(self, most: int | None = None) -> None:
        """Wake about as many waiting publishers as there is room for, or *most* of them."""
        self._changed.set()
        if not self.queue:
            return
        if most is None:
            most = self._connections()
        while most > 0 and self.queue:
            waiter = self.queue.popleft()
            if not waiter.done():
                waiter.set_result(None)
                most -= 1

    def _connections(self) -> int:
        links = [] if self.backlog else self.links.in_use
        places = 0
        for messages, size in [link.under_way.room for link in links] or [self.backlog.room]:
            places += min(messages, size // self._typical_bytes + 1 if size else 0)
        return places

    def wake_all(self) -> None:
        self._wake(len(self.queue))

    def pending(self) -> list[Answer]:
        """The answers that a caller still waits for."""
        return [answer for queue in self._requests for answer in queue.answers]

    async def end(self) -> None:
        """Fail the publishes that are not confirmed by now, and disconnect."""
        self.has_ended = True
        self.wake_all()
        await self.tasks.end()
        await self.links.stop_connecting()
        for kept in (self.backlog, self.full_topics.refused):
            kept.fail(ClosedError("the producer was closed before this was confirmed"))
        await asyncio.gather(*(link.close() for link in self.links.all))

    # --- listener of the connections

    def requests_answered(self, connection: Connection) -> None:
        self.links.roster.succeeded(connection.address)
        self._wake()

    def connection_lost(self, connection: Connection, error: Exception | None) -> None:
        self.links.lost(connection, error)
        self._wake()

    def publishes_lost(self, connection: Connection, publishes: list[Publish]) -> None:
        reason = connection.failure or ClosedError("the producer was closed before this was confirmed")
        for publish in publishes:
            # The first connection may be dead already when the message is sent. And many messages may be lost
            # because others were refused.
            free = connection.was_refused or not publish.was_lost
            publish.was_lost = True
            self._lost(publish, reason, tries=0 if free else 1)

    def publish_refused(self, connection: Connection, publish: Publish, error: ProtocolError) -> None:
        if error.code in _NODE_FAILED:
            self.links.failed(connection.address)
            self.links.query_soon()
            connection.was_refused = is_full = error.text.endswith(_TOPIC_IS_FULL)
            self._lost(publish, error, tries=1, is_full=is_full)
            return
        connection.was_refused = True
        parts = publish.split() if error.code in _ONE_IS_BAD else [publish]
        if len(parts) == 1:
            publish.fail(error)
        for part in parts:
            if not part.is_settled:
                self._lost(part, error, tries=0)

    # --- when something goes wrong

    def enqueue(self, publish: Publish) -> None:
        """Queue a publish until a connection can take it."""
        self._limit(publish)
        self.backlog.append(publish)
        if self._rescue is None or self._rescue.done():
            self._rescue = self.tasks.spawn(self._drain_backlog(), "producer backlog")

    def _limit(self, publish: Publish) -> None:
        """Its retry time begins with its first wait."""
        if publish.give_up_at is None:
            publish.give_up_at = self._now() + self._retry_seconds

    def _lost(self, publish: Publish, error: Exception, tries: int, *, is_full: bool = False) -> None:
        """A sent publish was not confirmed: send it again unless it has no attempts left."""
        publish.tries += tries
        publish.error = error
        if self.has_ended:
            publish.fail(ClosedError("the producer was closed before this was confirmed"))
        elif is_full and not publish.is_settled:
            self._limit(publish)
            self.full_topics.add(publish, error, self._max_tries)
        elif not publish.is_settled:
            self.enqueue(publish)

    async def _drain_backlog(self) -> None:
        """Find a connection for the backlog, round after round, until each publish is sent or has failed."""
        try:
            await self._send_backlog()
        except Exception as error:
            self.backlog.fail(error)  # a bug here must not leave a publisher without an answer
            raise
        finally:
            self._wake()

    async def _send_backlog(self) -> None:
        pause = FIRST_RETRY_SECONDS
        while True:
            await self._rediscover()
            exhausted = self.backlog.fail_expired(self._max_tries, self._now() + pause)
            self._wake()
            if exhausted:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LAST_RETRY_SECONDS)
            if not self.backlog:
                return
            try:
                self.links.current = await self.links.connect_any()
            except (OSError, ProtocolError) as error:
                self.backlog.tried(error)
                continue
            await self._hand_over_backlog()

    async def _rediscover(self) -> None:
        """Before a publish fails, ask nsqlookupd once which nsqd exist now, and try again with those.

        An nsqd that came back since nsqlookupd was asked last is still unknown, or rests because it was away.
        Publishes that were lost because of another message's refusal get the same chance.
        """
        while self.links.addresses.has_lookupds and (failing := self._failing()):
            await self.links.rediscover()
            for publish in failing:
                publish.tries, publish.rediscovered = 0, True

    def _failing(self) -> list[Publish]:
        """The publishes without attempts left and without an nsqlookupd query."""
        # One query for each: otherwise a publish that every nsqd refuses would stay in the backlog forever.
        return [each for each in self.backlog if each.tries >= self._max_tries and not each.rediscovered]

    @property
    def _max_tries(self) -> int:
        """Once for each address."""
        return max(1, len(self.links.roster))

    async def _hand_over_backlog(self) -> None:
        """Send the backlog as far as connections have room; all of it could be a hundred megabytes."""
        while self.backlog:
            self._changed.clear()
            link = self.links.usable()
            if link is not None:
                publish = self.backlog.popleft()
                if not publish.is_settled:
                    self._entrust(link, publish)
                continue
            if not self.links.in_use:
                return
            self._wake()
            self._changed.clear()
            await self._changed.wait()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
