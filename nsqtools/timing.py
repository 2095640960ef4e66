"""Lines about how long requests take, one after every so many results. Pure."""

import math
from collections import deque
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
