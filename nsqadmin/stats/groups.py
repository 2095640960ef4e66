"""Consumers of a channel grouped by what they share, and nodes by how many messages wait on each; PURE."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log1p
from typing import Final

from nsqadmin.stats.consumers import Consumer

# The number of degrees of heat in which nodes are shown.
HEATS: Final = 5


@dataclass(slots=True)
class ConsumerGroup:
    """Connections of one client, host or user agent. ``rate`` is None while one of theirs is unknown."""

    name: str
    connections: int = 0
    silent: int = 0
    in_flight: int = 0
    ready: int = 0
    rate: float | None = 0.0

    def add(self, one: Consumer) -> None:
        self.connections += 1
        self.silent += one.is_silent
        self.in_flight += one.stats.in_flight_count
        self.ready += one.stats.ready_count
        self.rate = None if self.rate is None or one.rate is None else self.rate + one.rate


def grouped(consumers: Iterable[tuple[str, Consumer]]) -> list[ConsumerGroup]:
    """Group consumers by name: groups with stuck connections first, then the largest."""
    found: dict[str, ConsumerGroup] = {}
    for name, one in consumers:
        found.setdefault(name, ConsumerGroup(name)).add(one)
    return sorted(found.values(), key=lambda one: (-one.silent, -one.connections, one.name))


def heats(depths: Sequence[int]) -> list[int]:
    """Return the heat of each node: 0 if nothing waits, else on a logarithmic scale up to the fullest."""
    most = max(depths, default=0)
    return [0 if depth <= 0 else max(1, round(HEATS * log1p(depth) / log1p(most))) for depth in depths]
