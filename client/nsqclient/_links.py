"""The connections of one client: opened to the known nsqd, and opened again after a loss."""

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from nsqclient._addresses import PATIENCE_SECONDS, AddressBook
from nsqclient._config import Config
from nsqclient._connection import Connection
from nsqclient._errors import ClosedError
from nsqclient._handshake import connect as open_connection
from nsqclient._listener import Listener
from nsqclient._tasks import Tasks, is_stopping, spawn
from nsqclient.wire.errors import ProtocolError

# After the loss of an nsqd, nsqlookupd is queried after this time, then after doubling pauses up to the poll
# interval.
FIRST_QUERY_SECONDS: Final = 0.5


class Links:
    """The connections of one client. A subclass prepares an opened connection, and ends a retired one."""

    def __init__(
        self,
        listener: Listener,
        config: Config,
        nsqds: Sequence[str],
        lookupds: Sequence[str],
        *,
        topic: str = "",
        answer_timeout: float | None = None,
    ) -> None:
        self._listener = listener
        self._config = config
        self._answer_timeout = answer_timeout
        self._tasks = Tasks()
        self.addresses = AddressBook(nsqds, lookupds, config, self._use_answers, topic=topic)
        self.roster = self.addresses.roster
        self.open: dict[str, Connection] = {}
        # To nsqd that are no longer used, until nothing is pending there.
        self._leaving: dict[Connection, asyncio.Task[None]] = {}
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._query_pause = config.lookupd_poll_interval
        self._query_at = float("-inf")
        self._query: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # an address has changed, or a connection

    @property
    def all(self) -> list[Connection]:
        """The connections in use, and the closing ones."""
        return [*self.open.values(), *self._leaving]

    @property
    def in_use(self) -> list[Connection]:
        return [link for link in self.open.values() if not link.is_closed]

    # --- for subclasses

    async def _prepare(self, link: Connection) -> None:
        """Take the first steps on a new connection, before it is used."""

    def _opened(self, link: Connection) -> None:
        """The connection is in use from now on."""
        raise NotImplementedError

    def _not_opened(self, address: str, error: Exception) -> None:
        """The connection could not be opened."""

    async def _answered(self, link: Connection) -> None:
        """Wait until nothing is pending on a retired connection."""
        raise NotImplementedError

    def _chosen(self) -> list[str]:
        """The addresses to connect to."""
        return self.roster.addresses

    # --- addresses

    async def add(self, address: str) -> None:
        """Add an nsqd that is given by address, and connect to it."""
        self.addresses.add(address)
        await self.connect(address)

    async def remove(self, address: str) -> None:
        """Disconnect from an nsqd that was given by address, once it has answered; ValueError if none was."""
        self.addresses.remove(address)
        if address not in self.roster and (link := self.open.get(address)):
            await self.retire(link)

    def add_lookupd(self, address: str) -> None:
        self.addresses.add_lookupd(address)
        self._query_at = float("-inf")
        self._changed.set()

    def remove_lookupd(self, address: str) -> None:
        self.addresses.remove_lookupd(address)
        self._use_answers()

    def failed(self, address: str) -> None:
        """An nsqd was unreachable, closed the connection or could not store a message: it rests."""
        self.roster.failed(address, self._now())
        self._changed.set()

    def query_soon(self) -> None:
        """Query nsqlookupd soon, because an nsqd was lost or may have been decommissioned."""
        self._shorten_pause()
        self._changed.set()

    def _shorten_pause(self) -> None:
        self._query_pause = min(FIRST_QUERY_SECONDS, self._config.lookupd_poll_interval)
        self._query_at = min(self._query_at, self._now() + self._query_pause)

    def _query_lookupds(self) -> asyncio.Task[None]:
        """The task that asks all nsqlookupd for nsqd, shared by all who need it."""
        # Clients that start together must not all query at the same times.
        jitter = 1 + random.random() * self._config.lookupd_poll_jitter
        self._query_at = self._now() + self._query_pause * jitter
        self._query_pause = min(2 * self._query_pause, self._config.lookupd_poll_interval)
        if self._query is None or self._query.done():
            self._query = self._tasks.spawn(self.addresses.query_lookupds(), "ask nsqlookupd")
        return self._query

    def _use_answers(self) -> None:
        """Use the nsqd that are known now.

        The last nsqd stays while it is connected or connecting. An nsqlookupd that was just started knows no
        nsqd before they register again.
        """
        known = self.addresses.known
        if known or not self.addresses.has_lookupds or not (self.in_use or self._connecting):
            self.roster.update(known)
        self._changed.set()

    # --- connecting

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
                raise ClosedError("the client was closed while it connected") from None
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
                self._answer_timeout,
                is_configured=address in self.addresses.configured,
            )
            try:
                await self._prepare(link)
            except BaseException:
                await link.close()
                raise
        except (OSError, ProtocolError) as error:
            self._not_opened(address, error)
            if self.roster.is_well(address, self._now()):
                self.query_soon()  # it may be removed permanently
            self.addresses.unreachable(address)
            self.failed(address)
            raise
        finally:
            del self._connecting[address]
        if address not in self.roster:
            await link.close()
            raise ClosedError(f"{address} was removed while it was being connected")
        self.open[address] = link
        self._opened(link)
        return link

    async def keep_connected(self) -> None:
        """Connect to the known nsqd, again after a loss, and ask nsqlookupd for others."""
        while True:
            self._changed.clear()
            if self._now() >= self._query_at:
                # An nsqlookupd that hangs must not delay the connections to known nsqd.
                patience = PATIENCE_SECONDS if len(self.roster) else None
                await asyncio.wait([self._query_lookupds()], timeout=patience)
            if not len(self.roster) and self._query_pause >= self._config.lookupd_poll_interval:
                self._shorten_pause()  # the registration of a new topic takes a moment
            now = self._now()
            due = [self._query_at]
            for address in self._chosen():
                if address in self.open or address in self._connecting:
                    continue
                if self.roster.is_well(address, now):
                    self._opening(address)
                else:
                    due.append(self.roster.rests_until(address))
            try:
                async with asyncio.timeout_at(min(due)):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def retire(self, link: Connection) -> asyncio.Task[None]:
        """Use the connection no more, and end it when it has answered."""
        del self.open[link.address]
        self._leaving[link] = task = spawn(self._disconnect(link), f"leave {link.address}")
        return task

    async def _disconnect(self, link: Connection) -> None:
        try:
            await self._answered(link)
        finally:
            await link.close()
            del self._leaving[link]

    async def stop_connecting(self) -> None:
        """Open no more connections, and query nsqlookupd no more."""
        await self._tasks.end()
        await self.addresses.close()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
