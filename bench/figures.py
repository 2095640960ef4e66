"""What a row of the table gives: figures, what is asked of each, and what one run read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One number of a row and what is asked of it.

    *goal* bounds the ratio to the peer, *limit* the number itself: from below where more is better, else
    from above.
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
    """A figure of one run; where the work is counted in messages, what each cost the server and the load."""

    value: float
    server_us: float | None = None
    load_us: float | None = None


Readings = dict[str, Reading]


@dataclass(frozen=True)
class Plan:
    """How many messages of which size, and for how long; *size* None means mixed sizes."""

    size: int | None
    messages: int
    seconds: float


@dataclass(frozen=True)
class Row:
    """One kind of work. *run* gets a server and the plan and gives a reading for each figure."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    run: Callable[[Any, Plan], Readings]
    # The flags with which the servers are started for this row, by their NSQ names.
    flags: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    # It starts servers itself: *run* gets a bench.server.Program.
    own: bool = False
    # The null server can run it: its rate is the limit of the load and the event loop.
    null: bool = False
    # Rows that take long are run at most this often.
    most_runs: int | None = None


def rate(goal: float | None = None, unit: str = "msg/s") -> Figure:
    return Figure("rate", unit, goal=goal)


def less(name: str, unit: str, *, goal: float | None = None, limit: float | None = None) -> Figure:
    """A figure that should be small: memory, seconds, shares of a processor."""
    return Figure(name, unit, more=False, goal=goal, limit=limit)
