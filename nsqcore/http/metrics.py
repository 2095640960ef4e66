"""``/metrics`` for Prometheus: values are read at scrape time, so that the hot path has no cost."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Info, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from nsqclient.wire.version import NSQ_VERSION
from nsqcore.version import VERSION, build

# How many samples are written in one turn: this takes a millisecond.
_SAMPLES_PER_TURN: Final = 1000
BUILD_MEANING: Final = "always 1; the version of nsq-cluster, the NSQ it mirrors, and the build"
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

# The values of the labels, in order, and the value of the metric.
Sample = tuple[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric; *samples* are read while they are written.

    The library's own families hold an object for each sample and take five times as long to write: with
    thousands of topics that would block the event loop for a second at every scrape.
    """

    name: str
    help: str
    samples: Iterable[Sample]
    labels: tuple[str, ...] = ()
    counter: bool = False

    def text(self) -> Iterator[str]:
        """Yields the lines as the library would write them, name and meaning first."""
        name = f"{self.name}_total" if self.counter else self.name
        meaning = self.help.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {name} {meaning}\n# TYPE {name} {'counter' if self.counter else 'gauge'}\n"
        order = sorted(range(len(self.labels)), key=self.labels.__getitem__)
        for values, figure in self.samples:
            pairs = ",".join([f'{self.labels[at]}="{values[at].translate(_ESCAPES)}"' for at in order])
            number: str = floatToGoString(figure)  # type: ignore[no-untyped-call]
            yield f"{name}{{{pairs}}} {number}\n" if pairs else f"{name} {number}\n"


class PacedCollector(ABC):
    """A collector of so many samples that other tasks run while they are read."""

    @abstractmethod
    def families(self) -> Iterator[Family]:
        """Yields one family after another; the values are those of the moment they are read."""


class Metrics:
    """The registry of one daemon: its own collector, its version, memory, CPU and descriptors."""

    def __init__(self, collector: Collector | PacedCollector, program: str, build_name: str = "") -> None:
        # Not the library's global registry, because two daemons in one process must not share metrics.
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        Info(f"{program}_build", BUILD_MEANING, registry=self._registry).info(
            {"version": VERSION, "nsq": NSQ_VERSION, "build": build_name or build()}
        )
        self._paced: PacedCollector | None = None
        if isinstance(collector, PacedCollector):
            self._paced = collector
        else:
            self._registry.register(collector)

    def reply(self) -> web.Response:
        return _reply(generate_latest(self._registry))

    async def paced_reply(self) -> web.Response:
        """The same for a paced collector."""
        parts = [generate_latest(self._registry)]
        for family in self._paced.families() if self._paced is not None else ():
            lines = family.text()
            while piece := "".join(islice(lines, _SAMPLES_PER_TURN)):
                parts.append(piece.encode())
                await asyncio.sleep(0)
        return _reply(b"".join(parts))


def _reply(body: bytes) -> web.Response:
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})
