"""The connections of a producer, and the choice of nsqd for the next message."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from nsqclient._config import Config
from nsqclient._connection import Connection
from nsqclient._errors import ClosedError, UnreachableError
from nsqclient._links import Links
from nsqclient._listener import Listener
from nsqclient._requests import awaitable

log = logging.getLogger("nsqclient")

# The producer skips an nsqd with an answer pending longer than this, while others answer.
OVERDUE_SECONDS: Final = 0.5


class ProducerLinks(Links):
    """The connections of one producer; each new or lost connection calls *wake*."""

    def __init__(
        self,
        listener: Listener,
        config: Config,
        wake: Callable[[], None],
        *,
        nsqds: Sequence[str],
        lookupds: Sequence[str],
        spread: bool,
        publish_timeout: float,
        max_waiting: int,
    ) -> None:
        super().__init__(listener, config, nsqds, lookupds, answer_timeout=publish_timeout)
        self._wake = wake
        self._max_waiting = max_waiting
        self.spread = spread or bool(lookupds)
        self.current: Connection | None = None  # the one in use
        self._keeper: asyncio.Task[None] | None = None
        self.turn_noted = False

    @property
    def in_use(self) -> list[Connection]:
        """The connections for messages; without spreading, an open one may stay in reserve."""
        if self.spread:
            return super().in_use
        return [self.current] if self.current is not None and not self.current.is_closed else []

    def add_lookupd(self, address: str) -> None:
        super().add_lookupd(address)
        self.spread = True

    def lost(self, connection: Connection, error: Exception | None) -> None:
        """The connection has ended; another one is used."""
        if self.open.get(connection.address) is connection:
            del self.open[connection.address]
        if self.current is connection:
            self.current = next(iter(self.open.values()), None) if self.spread else None
        if error is not None and not connection.was_refused:
            log.warning("(%s) %s", connection.address, error)
            self.failed(connection.address)
        self._changed.set()

    # --- the next message

    def usable(self) -> Connection | None:
        """The connection for the next message: one with room, if possible neither overdue nor resting."""
        if not self.spread:
            link = self.current
            return None if link is None or link.is_closed or link.under_way.is_full else link
        late: Connection | None = None
        now = self._now()
        links = list(self.open.values())
        at = links.index(self.current) if self.current in links else 0
        for link in links[at:] + links[:at]:
            if not link.is_closed and not link.under_way.is_full:
                if link.unanswered_for <= OVERDUE_SECONDS and self.roster.is_well(link.address, now):
                    self.current = link
                    return link
                late = late or link
        if late is not None:
            self.current = late
        return late

    def note_turn(self) -> None:
        self.turn_noted = True
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """Send the messages of the next turn of the event loop to the next nsqd that usable() accepts."""
        self.turn_noted = False
        links = list(self.open.values())
        if len(links) > 1 and self.current in links:
            at = links.index(self.current)
            self.current = links[(at + 1) % len(links)]
            self.usable()

    # --- connecting

    async def connect_any(self) -> Connection:
        """A connection to the best address; raises the error of that address when it fails."""
        if self.addresses.has_lookupds and not len(self.roster):
            await self._wait_for_answers()
        if self.spread:
            if self._keeper is None or self._keeper.done():
                self._keeper = self._tasks.spawn(self.keep_connected(), "producer connections")
            well = [link for link in self.in_use if self.roster.is_well(link.address, self._now())]
            if well:
                return min(well, key=lambda link: link.unanswered_for > OVERDUE_SECONDS)
        address = self.roster.pick(self._now())
        if address is None:
            raise UnreachableError("; ".join(self.addresses.errors) or "nsqlookupd knows no nsqd")
        return await self.connect(address)

    async def rediscover(self) -> None:
        """Ask nsqlookupd for nsqd, and end all rests, because some may have come back."""
        await self._wait_for_answers()
        self.roster.end_backoff()

    async def _wait_for_answers(self) -> None:
        query = self._query_lookupds()
        await asyncio.wait([query])
        if query.cancelled():
            raise ClosedError("the producer was closed while it connected")

    def _opened(self, link: Connection) -> None:
        link.under_way.max_messages = self._max_waiting
        log.info("publishing to %s from now on", link.address)
        self._wake()

    def _use_answers(self) -> None:
        super()._use_answers()
        for address, link in list(self.open.items()):
            if address not in self.roster:
                self.retire(link)

    def retire(self, link: Connection) -> asyncio.Task[None]:
        task = super().retire(link)
        if self.current is link:
            self.current = next(iter(self.open.values()), None)
        return task

    async def _answered(self, link: Connection) -> None:
        if answers := link.under_way.answers:
            await asyncio.wait([awaitable(answer) for answer in answers])

    async def _disconnect(self, link: Connection) -> None:
        try:
            await super()._disconnect(link)
        finally:
            self._wake()
