"""Measures how long each destination takes for its messages, and reports it in lines."""

from collections.abc import Callable, Sequence

from nsqtools.timing import ACCURATE, Timings


class Timed:
    """One line for all results and, with several destinations, one for each."""

    def __init__(self, destinations: Sequence[str], every: int, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._all = Timings(every, "[aggregate]:")
        several = len(destinations) > 1
        self._each = {one: Timings(every if several else 0, f"[{one}]:") for one in destinations}
        if 0 < every < ACCURATE:
            tell(f"WARNING: percentiles of {every} results are coarse, {ACCURATE} or more give better ones")

    def one(self, destination: str, seconds: float) -> None:
        """Note that a destination took *seconds* for a message."""
        self._line(self._each[destination], seconds)

    def all(self, seconds: float) -> None:
        """Note that a message took *seconds* in all."""
        self._line(self._all, seconds)

    def _line(self, timings: Timings, seconds: float) -> None:
        if (line := timings.add(seconds)) is not None:
            self._tell(line)
