"""Decides when and how long a consumer pauses because its handler fails. Pure.

A failure raises the level. Above 0 the consumer stops for a time that grows with the level, then asks for one
trial message: its success lowers the level, its failure raises it. Outcomes that arrive during the pause
belong to earlier messages and do not count.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto


class Phase(Enum):
    RUNNING = auto()  # full speed
    STOPPED = auto()  # no messages until the time is up
    TRIAL = auto()  # one message decides


@dataclass(slots=True)
class Backoff:
    """The state of one consumer; ``multiplier`` and ``max_duration`` in seconds.

    A ``strategy`` returns the seconds for a level; without one they double with each level.
    """

    multiplier: float = 1
    max_duration: float = 120
    full_jitter: bool = False
    level: int = 0
    phase: Phase = Phase.RUNNING
    strategy: Callable[[int], float] | None = None

    def succeeded(self, chance: float = 1) -> float | None:
        """A message was handled; return the seconds to pause, or None to continue as ``phase`` says."""
        if self.phase is not Phase.TRIAL:
            return None
        self.level -= 1
        if self.level > 0:
            return self._stop(chance)
        self.phase = Phase.RUNNING
        return None

    def failed(self, chance: float = 1) -> float | None:
        """A message failed; returns how long to stop, if at all. *chance* in 0..1 is the jitter."""
        if self.phase is Phase.STOPPED or self.multiplier <= 0 or self.max_duration <= 0:
            return None
        # Levels above that of the longest stop would only make the recovery longer.
        if self._duration(self.level + 1) <= self.max_duration or self.level == 0:
            self.level += 1
        return self._stop(chance)

    def continued(self, chance: float = 1) -> float | None:
        """The program requeued a message. This is no evidence about the handler, so a trial repeats."""
        return self._stop(chance) if self.phase is Phase.TRIAL else None

    def waited(self) -> None:
        """The pause is over: take one message on trial."""
        if self.phase is Phase.STOPPED:
            self.phase = Phase.TRIAL

    def _stop(self, chance: float) -> float:
        self.phase = Phase.STOPPED
        duration = max(0.0, min(self._duration(self.level), self.max_duration))
        return duration * chance if self.full_jitter else duration

    def _duration(self, level: int) -> float:
        return self.multiplier * 2.0**level if self.strategy is None else self.strategy(level)
