"""Where a consumer finds its nsqd: fixed addresses, or nsqlookupd asked again and again."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Final

from nsqclient.config import Config
from nsqclient.lookups import Lookups
from nsqclient.wire.address import split_address

# A lost nsqd is looked for this soon, then at doubling distances up to the poll interval; waiting a whole
# minute for one that merely restarted would leave its messages lying.
FIRST_RETRY_SECONDS: Final = 0.5


class RoundPace:
    """The distance between rounds: the interval; after a loss a short one, doubling up to the interval."""

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

    async def pause(self, extra: float = 0) -> None:
        """Wait for the next round; hurry() cuts a long wait short."""
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
    """The nsqd of a topic: those that were named, and those that nsqlookupd knows.

    One nsqlookupd is asked per round, each in turn, the next one when it does not answer.
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

    @property
    def fixed(self) -> list[str]:
        """Those that were named."""
        return list(self._fixed)

    async def rounds(self) -> AsyncIterator[list[str]]:
        """The addresses known now, again and again, with a pause before each but the first."""
        # Consumers that were started together must not all ask at the same times.
        jitter = random.random() * self._config.lookupd_poll_jitter * self._config.lookupd_poll_interval
        while True:
            found = self.fixed
            if self._lookups:
                found += await self._lookups.nsqds_of(self._topic)
                # Nothing to read from: a topic made a moment ago takes another moment to be announced.
                if not found and not self._pace.is_hurried:
                    self._pace.hurry()
            yield list(dict.fromkeys(found))
            await self._pace.pause(extra=jitter)
            jitter = 0

    def hurry(self) -> None:
        """A connection was lost or refused: let the next round come soon."""
        self._pace.hurry()

    def add(self, address: str) -> None:
        """Name one more nsqd."""
        split_address(address)
        if address not in self._fixed:
            self._fixed.append(address)

    def remove(self, address: str) -> None:
        """Do not connect to it again; ValueError when it is not one of those that were named."""
        if address not in self._fixed:
            raise ValueError(
                f"{address} is none of the nsqd that were named: {', '.join(self._fixed) or 'none'}"
            )
        self._fixed.remove(address)

    def add_lookupd(self, address: str) -> None:
        """Ask one more nsqlookupd, soon."""
        self._lookups.add(address)
        self._pace.hurry()

    def remove_lookupd(self, address: str) -> None:
        """Do not ask it again; the nsqd it has named stay. ValueError when it is not one of them."""
        self._lookups.remove(address)
