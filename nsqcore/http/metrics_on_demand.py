"""``/metrics`` whose library is loaded at the first request, so that a start does not wait for it."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from nsqcore.http.metrics import Metrics


class MetricsOnDemand:
    """Makes its :class:`Metrics` at the first request for metrics."""

    def __init__(self, make: "Callable[[], Metrics]") -> None:
        self._make = make
        self._made: Metrics | None = None

    def reply(self) -> web.Response:
        return self._metrics().reply()

    async def paced_reply(self) -> web.Response:
        if self._made is None:
            # Loading the library takes 70 ms, which would block the event loop.
            made = await asyncio.to_thread(self._make)
            self._made = self._made or made
        return await self._made.paced_reply()

    def _metrics(self) -> "Metrics":
        if self._made is None:
            self._made = self._make()
        return self._made
