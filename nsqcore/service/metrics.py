"""``/metrics`` for Prometheus: figures are read when somebody asks, so that the hot path pays nothing."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from copy import copy
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

# Samples that are written in one go: two milliseconds.
_SLICE: Final = 256


class PacedCollector(ABC):
    """Has so many figures that others get their turn while they are read."""

    @abstractmethod
    async def read(self) -> list[Metric]:
        """The figures as they are now, with pauses."""


class Metrics:
    """The registry of one daemon: its own collector plus memory, CPU and descriptors of the process."""

    def __init__(self, collector: Collector | PacedCollector) -> None:
        # Not the library's global registry: two daemons in one process must not see each other's figures.
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._paced: PacedCollector | None = None
        if isinstance(collector, PacedCollector):
            self._paced = collector
        else:
            self._registry.register(collector)

    def reply(self) -> web.Response:
        return _reply(generate_latest(self._registry))

    async def paced_reply(self) -> web.Response:
        """The same of a paced collector."""
        parts = [generate_latest(self._registry)]
        for family in await self._paced.read() if self._paced is not None else ():
            for part in _written(family):
                parts.append(part)
                await asyncio.sleep(0)
        return _reply(b"".join(parts))


class _One(Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


def _written(family: Metric) -> Iterator[bytes]:
    """The text of one family in pieces: what it is called and means, and some of its samples each time."""
    for start in range(0, max(1, len(family.samples)), _SLICE):
        piece = copy(family)
        piece.samples = family.samples[start : start + _SLICE]
        text = generate_latest(_One(piece))
        if start:
            while text.startswith(b"# "):
                text = text.partition(b"\n")[2]
        yield text


def _reply(body: bytes) -> web.Response:
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})
