"""When each request of a user is due, by a rate and by stages that multiply it. Pure: time is an argument."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stage:
    """So many seconds at so many times the rate."""

    seconds: float
    times: float


class Schedule:
    """The moments, in seconds since the start, at which requests are due; the last stage goes on for ever."""

    def __init__(self, per_second: float, stages: Sequence[Stage] = (), offset: float = 0.0) -> None:
        """*offset*, a share of one interval, keeps users that start together from asking together."""
        self._per_second = per_second
        self._stages = list(stages)
        self._owed = offset % 1.0  # requests from the start of the stage to the next one that is due
        self._at = 0.0  # where the current stage begins
        self._place = 0

    def next(self) -> float:
        """When the next request is due."""
        while True:
            rate, end = self._current()
            due = self._at + self._owed / rate if rate > 0 else float("inf")
            if due < end:
                self._owed += 1.0
                return due
            # What is left of the interval goes on in the next stage, at its rate.
            self._owed -= (end - self._at) * rate
            self._at = end
            self._place += 1

    def _current(self) -> tuple[float, float]:
        if self._place < len(self._stages):
            stage = self._stages[self._place]
            return self._per_second * stage.times, self._at + stage.seconds
        return self._per_second * (self._stages[-1].times if self._stages else 1.0), float("inf")
