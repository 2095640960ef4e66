"""How soon a disk is full at the rate of the last minutes; PURE, time arrives as ``at_s``."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

# The rate is taken over at most and at least so long; one value a minute is enough for it.
WINDOW_S: Final = 900.0
MIN_S: Final = 600.0
SPACING_S: Final = 60.0
# A rate over some minutes allows no forecast beyond this time.
FAR_S: Final = 30 * 86_400.0


@dataclass(slots=True)
class Filling:
    """The recent free space of one disk."""

    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def note(self, at_s: float, free: int) -> float | None:
        """Store the *free* bytes; return the seconds until none are left, None if the disk does not fill up.

        It is also None until ten minutes of values are known, and when it would take longer than `FAR_S`.
        """
        if free < 0:
            self._seen.clear()
            return None
        while self._seen and at_s - self._seen[0][0] > WINDOW_S:
            self._seen.popleft()
        if not self._seen or at_s - self._seen[-1][0] >= SPACING_S:
            self._seen.append((at_s, free))
        began_s, then = self._seen[0]
        passed_s = at_s - began_s
        if passed_s < MIN_S or free >= then:
            return None
        left_s = free * passed_s / (then - free)
        return left_s if left_s <= FAR_S else None
