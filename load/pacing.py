"""When each request of a user is due, by a rate and stages that multiply it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stage:
    """For *seconds*, the rate is multiplied by *times*."""

    seconds: float
    times: float


class Schedule:
    """The moments, in seconds since the start, at which requests are due; the last stage never ends."""

    def __init__(self, per_second: float, stages: Sequence[Stage] = (), offset: float = 0.0) -> None:
        """*offset* is a share of one interval, so that users that start together do not send together."""
        self._per_second = per_second
        self._stages = list(stages)
        self._until_due = offset % 1.0  # requests from the start of the stage to the next one that is due
        self._at = 0.0  # where the current stage begins
        self._place = 0

    def next(self) -> float:
        """Return when the next request is due."""
        while True:
            rate, end = self._current()
            due = self._at + self._until_due / rate if rate > 0 else float("inf")
            if due < end:
                self._until_due += 1.0
                return due
            # The rest of the interval passes in the next stage, at that stage's rate.
            self._until_due -= (end - self._at) * rate
            self._at = end
            self._place += 1

    def _current(self) -> tuple[float, float]:
        if self._place < len(self._stages):
            stage = self._stages[self._place]
            return self._per_second * stage.times, self._at + stage.seconds
        return self._per_second * (self._stages[-1].times if self._stages else 1.0), float("inf")
