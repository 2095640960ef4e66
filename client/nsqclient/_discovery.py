"""Finds the nsqd of a consumer: fixed addresses, and nsqlookupd asked again and again."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Final

from nsqclient._config import Config
from nsqclient._lookups import Lookups
from nsqclient._tasks import end
from nsqclient.wire.address import split_address

# A lost nsqd is looked for after this time, then after doubling pauses up to the poll interval. If it merely
# restarted, a pause of a whole minute would leave its messages undelivered.
FIRST_RETRY_SECONDS: Final = 0.5


class RoundPace:
    """The pause between rounds: the interval; after a loss a short pause, doubling up to the interval."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._retry: float | None = None
        self._hurried = asyncio.Event()

    @property
    def is_hurried(self) -> bool:
        return self._retry is not None

    def hurry(self) -> None:
        self._retry = FIRST_RETRY_SECONDS
        self._hurried.set()

    def wake(self) -> None:
        """Cut the wait short, and leave later pauses as long as they are."""
        self._hurried.set()

    async def pause(self, extra: float = 0) -> None:
        """Wait for the next round; hurry() and wake() cut a long wait short."""
        self._hurried.clear()
        wait = self._next_wait() or self._interval + extra
        try:
            async with asyncio.timeout(wait):
                await self._hurried.wait()
        except TimeoutError:
            return
        await asyncio.sleep(self._next_wait() or 0)

    def _next_wait(self) -> float | None:
        wait = self._retry
        if wait is not None:
            self._retry = wait * 2 if wait * 2 < self._interval else None
        return wait


class Addresses:
    """The nsqd of a topic: those given by address, and those that nsqlookupd knows.

    One nsqlookupd is asked per round, in turn; when it does not answer, the next one is asked.
    """

    def __init__(
        self, nsqd_addresses: Sequence[str], lookupd_addresses: Sequence[str], topic: str, config: Config
    ) -> None:
        for address in nsqd_addresses:
            split_address(address)
        self._fixed = list(dict.fromkeys(nsqd_addresses))
        self._lookups = Lookups(lookupd_addresses, config)
        self._topic = topic
        self._config = config
        self._pace = RoundPace(config.lookupd_poll_interval)
        self._asking: asyncio.Task[list[str]] | None = None

    @property
    def fixed(self) -> list[str]:
        """The nsqd that were given by address."""
        return list(self._fixed)

    async def rounds(self) -> AsyncIterator[list[str]]:
        """Yields the addresses known now, again and again, with a pause before each round but the first."""
        # Consumers that were started together must not all ask at the same times.
        jitter = random.random() * self._config.lookupd_poll_jitter * self._config.lookupd_poll_interval
        try:
            while True:
                found = self.fixed
                if self._lookups:
                    found += await self._look_up()
                    # No nsqd yet: a topic made a moment ago takes another moment to be announced.
                    if not found and not self._pace.is_hurried:
                        self._pace.hurry()
                yield list(dict.fromkeys(found))
                await self._pace.pause(extra=jitter)
                jitter = 0
        finally:
            if self._asking is not None:
                await end([self._asking])

    async def _look_up(self) -> list[str]:
        """What nsqlookupd knows; named nsqd wait only a moment for it, and a late answer begins a round."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._lookups.nsqds_of(self._topic), name="ask nsqlookupd")
            await asyncio.wait([self._asking], timeout=FIRST_RETRY_SECONDS if self._fixed else None)
            if not self._asking.done():
                self._asking.add_done_callback(lambda _: self._pace.wake())
        if not self._asking.done():
            return []
        asked, self._asking = self._asking, None
        return asked.result()

    def hurry(self) -> None:
        """Let the next round come soon, after a connection was lost or refused."""
        self._pace.hurry()

    def add(self, address: str) -> None:
        """Add an nsqd by its address."""
        split_address(address)
        if address not in self._fixed:
            self._fixed.append(address)

    def remove(self, address: str) -> None:
        """Remove an nsqd that was given by address; ValueError when it was not given."""
        if address not in self._fixed:
            raise ValueError(
                f"{address} is none of the nsqd that were named: {', '.join(self._fixed) or 'none'}"
            )
        self._fixed.remove(address)

    def add_lookupd(self, address: str) -> None:
        """Add an nsqlookupd, and ask soon."""
        self._lookups.add(address)
        self._pace.hurry()

    def remove_lookupd(self, address: str) -> None:
        """Stop asking an nsqlookupd; ValueError when it is not one of them."""
        self._lookups.remove(address)
