"""The parts of a table row: its metrics, their goals, and the readings of one run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Metric:
    """One number of a row and its goal.

    *goal* bounds the ratio to the peer, *limit* the number itself; both are lower bounds if more is better,
    otherwise upper bounds.
    """

    name: str
    unit: str
    more: bool = True
    goal: float | None = None
    limit: float | None = None

    def ratio_reached(self, ratio: float) -> bool:
        return self.goal is None or (ratio >= self.goal if self.more else ratio <= self.goal)

    def value_reached(self, value: float) -> bool:
        return self.limit is None or (value >= self.limit if self.more else value <= self.limit)


@dataclass(frozen=True)
class Reading:
    """A metric of one run and, if messages were counted, the cost of each to the server and the load."""

    value: float
    server_us: float | None = None
    load_us: float | None = None


Readings = dict[str, Reading]


@dataclass(frozen=True)
class Plan:
    """Number and size of the messages, and the time limit; *size* None means mixed sizes."""

    size: int | None
    messages: int
    seconds: float


@dataclass(frozen=True)
class Row:
    """One kind of work. *run* takes a server and the plan and returns a reading for each metric."""

    name: str
    title: str
    metrics: tuple[Metric, ...]
    run: Callable[[Any, Plan], Readings]
    # Flags with which the servers are started for this row, by their NSQ names.
    flags: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    # The row starts servers itself: *run* takes a bench.server.Program.
    own: bool = False
    # The null server can run the row; its rate is the limit of the load and the event loop.
    null: bool = False
    # The most runs of the row, for rows that take long.
    most_runs: int | None = None


def rate(goal: float | None = None, unit: str = "msg/s") -> Metric:
    return Metric("rate", unit, goal=goal)


def less(name: str, unit: str, *, goal: float | None = None, limit: float | None = None) -> Metric:
    """Return a metric that should be small: memory, seconds, shares of a processor."""
    return Metric(name, unit, more=False, goal=goal, limit=limit)
