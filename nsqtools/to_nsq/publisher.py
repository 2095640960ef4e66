"""Sends each record to all destinations, many at a time, and counts the confirmed ones."""

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from nsqclient import Producer

# How many records may be unconfirmed: enough to keep a destination busy, but few with an unknown outcome when
# it fails.
WINDOW: Final = 500
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class Publisher:
    """A record counts as confirmed when every destination has confirmed it."""

    def __init__(
        self, topic: str, producers: Sequence[Producer], headers: Mapping[str, str] = _NO_HEADERS
    ) -> None:
        self._topic = topic
        self._headers = headers
        self._producers = producers
        self.sent = 0
        self.confirmed = 0
        self.failed = asyncio.Event()
        self.failure: BaseException | None = None
        self._progress = asyncio.Event()  # set when one more is confirmed

    async def send(self, record: bytes) -> None:
        """Send one record; waits only while too many records are unconfirmed."""
        while self.sent - self.confirmed >= WINDOW:
            self._progress.clear()
            await self._progress.wait()
        self.sent += 1
        missing = len(self._producers)

        def confirmed(answer: "asyncio.Future[bytes]") -> None:
            nonlocal missing
            if answer.cancelled() or answer.exception() is not None:
                self.failure = self.failure or answer.exception()
                self.failed.set()
                return
            missing -= 1
            self.confirmed += not missing
            self._progress.set()

        for producer in self._producers:
            (await producer.submit(self._topic, record, headers=self._headers)).add_done_callback(confirmed)

    async def close(self) -> None:
        """Wait for the records under way."""
        await asyncio.gather(*(producer.close() for producer in self._producers))
