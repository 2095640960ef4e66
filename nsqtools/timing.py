"""Lines about how long requests and destinations take, one after every so many results. Pure."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

ACCURATE: Final = 100
"""With fewer results the 99th percentile is simply the slowest result."""


class Timings:
    """Collects the time of each result and makes a line after *every* results; 0 makes none."""

    def __init__(self, every: int, prefix: str) -> None:
        self._prefix = prefix
        self._every = every
        self._recent: deque[float] = deque(maxlen=every)
        self._since_line = 0

    def add(self, seconds: float) -> str | None:
        """Note one result; return a line when one is due."""
        if not self._every:
            return None
        self._recent.append(seconds)
        self._since_line += 1
        if self._since_line <= self._every:
            return None
        self._since_line = 1  # this result belongs to the next line
        times = sorted(self._recent)
        return (
            f"{self._prefix} finished {self._every}"
            f" - 99th: {_milliseconds(percentile(times, 99))}"
            f" - 95th: {_milliseconds(percentile(times, 95))}"
            f" - avg: {_milliseconds(sum(times) / len(times))}"
        )


def percentile(ordered: list[float], percent: int) -> float:
    """The smallest of the *ordered* values that is not below *percent* of them."""
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f}ms"


class Timed:
    """One line for all results and, with several destinations, one for each."""

    def __init__(self, destinations: Sequence[str], every: int, log: Callable[[str], None]) -> None:
        self._log = log
        self._all = Timings(every, "[aggregate]:")
        several = len(destinations) > 1
        self._each = {one: Timings(every if several else 0, f"[{one}]:") for one in destinations}
        if 0 < every < ACCURATE:
            log(f"WARNING: percentiles of {every} results are coarse, {ACCURATE} or more give better ones")

    def one(self, destination: str, seconds: float) -> None:
        """Note that a destination took *seconds* for a message."""
        self._line(self._each[destination], seconds)

    def all(self, seconds: float) -> None:
        """Note that a message took *seconds* in all."""
        self._line(self._all, seconds)

    def _line(self, timings: Timings, seconds: float) -> None:
        if (line := timings.add(seconds)) is not None:
            self._log(line)
