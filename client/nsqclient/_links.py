"""The connections of a producer, and the choice of nsqd for the next message."""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Final

from nsqclient._addresses import AddressBook, Roster
from nsqclient._config import Config
from nsqclient._connection import Connection
from nsqclient._errors import ClosedError, UnreachableError
from nsqclient._handshake import connect as open_connection
from nsqclient._listener import Listener
from nsqclient._requests import awaitable
from nsqclient._tasks import Tasks, is_stopping
from nsqclient.wire.errors import ProtocolError

log = logging.getLogger("nsqclient")

# How soon a producer that spreads tries again to connect to an nsqd.
RECONNECT_SECONDS: Final = 1.0

# The producer skips an nsqd with an answer pending longer than this, while others answer.
OVERDUE_SECONDS: Final = 0.5


class Links:
    """The connections of one producer; each new or lost connection calls *wake*."""

    def __init__(
        self,
        listener: Listener,
        config: Config,
        tasks: Tasks,
        wake: Callable[[], None],
        *,
        nsqds: Sequence[str],
        lookupds: Sequence[str],
        spread: bool,
        publish_timeout: float,
        max_waiting: int,
    ) -> None:
        self._listener = listener
        self._config = config
        self._tasks = tasks
        self._wake = wake
        self._publish_timeout = publish_timeout
        self._max_waiting = max_waiting
        self.addresses = AddressBook(nsqds, lookupds, config, self._use_known)
        self.spread = spread or bool(lookupds)
        self.roster = Roster(self.addresses.known)
        self.open: dict[str, Connection] = {}
        self.current: Connection | None = None  # the one in use
        self.leaving: set[Connection] = set()  # to nsqd that are no longer used, until they have answered
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._reconnect_task: asyncio.Task[None] | None = None
        self.turn_noted = False
        self._discover_at = 0.0
        self._queried_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    @property
    def all(self) -> list[Connection]:
        """The connections in use, and the closing ones with a pending answer."""
        return [*self.open.values(), *self.leaving]

    @property
    def in_use(self) -> list[Connection]:
        """The connections for messages; without spreading, an open one may stay in reserve."""
        links = self.open.values() if self.spread else [self.current] if self.current else []
        return [link for link in links if not link.is_closed]

    # --- addresses

    async def add(self, address: str) -> None:
        """Add an nsqd that is given by address, and connect to it."""
        self.addresses.add(address)
        self.roster.update(self.addresses.known)
        await self.connect(address)

    async def remove(self, address: str) -> None:
        """Disconnect from an nsqd that was given by address, once it has answered; ValueError if none was."""
        self.addresses.remove(address)
        self.roster.update(self.addresses.known)
        if address not in self.roster and (link := self.open.get(address)):
            await self.retire(link)

    def add_lookupd(self, address: str) -> None:
        self.addresses.add_lookupd(address)
        self.spread = True
        self._discover_at = 0.0

    def remove_lookupd(self, address: str) -> None:
        self.addresses.remove_lookupd(address)
        self._discover_at = 0.0
        if self.addresses.has_lookupds:
            self._use_known()
        else:
            self.roster.update(self.addresses.known)

    def lost(self, connection: Connection, error: Exception | None) -> None:
        """The connection has ended; another one is used."""
        if self.open.get(connection.address) is connection:
            del self.open[connection.address]
        if self.current is connection:
            self.current = next(iter(self.open.values()), None) if self.spread else None
        if error is not None and not connection.was_refused:
            log.warning("(%s) %s", connection.address, error)
            self.failed(connection.address)

    def failed(self, address: str) -> None:
        """An nsqd was unreachable, closed the connection or could not store a message: it rests."""
        self.roster.failed(address, self._now())

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
            asking = self._discovery()
            await asyncio.wait([asking])
            if asking.cancelled():
                raise ClosedError("the producer was closed while it connected")
        if self.spread:
            if self._reconnect_task is None or self._reconnect_task.done():
                self._reconnect_task = self._tasks.spawn(self._keep_connected(), "producer connections")
            well = [
                link
                for link in self.open.values()
                if not link.is_closed and self.roster.is_well(link.address, self._now())
            ]
            if well:
                return min(well, key=lambda link: link.unanswered_for > OVERDUE_SECONDS)
        address = self.roster.pick(self._now())
        if address is None:
            raise UnreachableError("; ".join(self.addresses.errors) or "nsqlookupd knows no nsqd")
        return await self.connect(address)

    async def connect(self, address: str) -> Connection:
        if link := self.open.get(address):
            if not link.is_closed:
                return link
            await link.ended()  # a refused command is ending it
        opening = self._opening(address)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled() and not is_stopping():
                raise ClosedError("the producer was closed while it connected") from None
            raise

    def _opening(self, address: str) -> asyncio.Task[Connection]:
        """The task that opens a connection, shared by all who need it."""
        opening = self._connecting.get(address)
        if opening is None:
            opening = self._connecting[address] = self._tasks.spawn(
                self._open(address), f"connect to {address}"
            )
        return opening

    async def _open(self, address: str) -> Connection:
        try:
            link = await open_connection(
                address,
                self._config,
                self._listener,
                self._publish_timeout,
                is_configured=address in self.addresses.configured,
            )
        except (OSError, ProtocolError):
            self.roster.failed(address, self._now())
            self.addresses.unreachable(address)
            self._discover_at = self._now()  # it may be removed permanently
            raise
        finally:
            del self._connecting[address]
        if address not in self.roster:
            await link.close()
            raise ClosedError(f"{address} was removed while it was being connected")
        link.under_way.max_messages = self._max_waiting
        self.open[address] = link
        log.info("publishing to %s from now on", address)
        self._wake()
        return link

    async def _keep_connected(self) -> None:
        """Connect to every known nsqd, including new ones, and leave those that are no longer known."""
        while True:
            now = self._now()
            for address in self.roster.addresses:
                # Not awaited: an nsqd that does not answer must not delay the use of the others.
                if address not in self.open and self.roster.is_well(address, now):
                    self._opening(address)
            for address, link in list(self.open.items()):
                if address not in self.roster:
                    self.retire(link)
            await asyncio.sleep(min(self._config.lookupd_poll_interval, RECONNECT_SECONDS))
            if self.addresses.has_lookupds and self._now() >= self._discover_at:
                self._discovery()  # not awaited: an nsqd that is lost during this is connected again

    def _discovery(self) -> asyncio.Task[None]:
        """The task that asks all nsqlookupd for nsqd, shared by all who need it."""
        if self._asking is None or self._asking.done():
            self._queried_at = self._now()
            jitter = 1 + random.random() * self._config.lookupd_poll_jitter
            self._discover_at = self._now() + self._config.lookupd_poll_interval * jitter
            self._asking = self._tasks.spawn(self.addresses.query_lookupds(), "ask nsqlookupd")
        return self._asking

    def _use_known(self) -> None:
        """Use the nsqd that are known now.

        The last nsqd stays while it is connected or connecting. An nsqlookupd that was just started knows no
        nsqd before they register again.
        """
        known = self.addresses.known
        if known or not (self.in_use or self._connecting):
            self.roster.update(known)

    def query_now(self) -> None:
        """Query for other nsqd at most once a second: an nsqd that refuses messages may be decommissioned."""
        if self.addresses.has_lookupds and self._now() - self._queried_at >= RECONNECT_SECONDS:
            self._discovery()

    def retire(self, link: Connection) -> asyncio.Task[None]:
        del self.open[link.address]
        self.leaving.add(link)
        if self.current is link:
            self.current = next(iter(self.open.values()), None)
        return self._tasks.spawn(self._disconnect(link), f"leave {link.address}")

    async def _disconnect(self, link: Connection) -> None:
        try:
            if answers := link.under_way.answers:
                await asyncio.wait([awaitable(answer) for answer in answers])
        finally:
            await link.close()
            self.leaving.discard(link)
            self._wake()

    async def rediscover(self) -> None:
        """Ask nsqlookupd for nsqd, and end all rests, because some may have come back."""
        await asyncio.wait([self._discovery()])
        self.roster.end_backoff()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
