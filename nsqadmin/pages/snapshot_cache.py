"""Recent statistics, for readers who pause a page and sort it; PURE, time arrives as ``now_s``."""

from dataclasses import dataclass
from itertools import count
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# The button is pressed a moment after the page was made.
RECENT_S: Final = 30.0
# The longest reading time of a paused page.
PINNED_S: Final = 900.0
# Each entry has all topics and channels with their statistics, so few are cached.
MAX_RECENT: Final = 2
MAX_PINNED: Final = 4


@dataclass(slots=True)
class _Entry(Generic[T]):
    snapshot: T
    round: object
    until_s: float
    is_pinned: bool = False


class SnapshotCache(Generic[T]):
    """Gives statistics a number by which they can be requested again for a while."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry[T]] = {}
        self._numbers = count(1)

    def add(self, figures: T, of_round: object, now_s: float) -> str:
        """Return a number for *figures*; all statistics of one round share one number."""
        for number, entry in self._entries.items():
            if entry.round is of_round:
                return number
        number = str(next(self._numbers))
        self._entries[number] = _Entry(figures, of_round, now_s + RECENT_S)
        self._tidy(now_s)
        return number

    def pin(self, number: str, now_s: float) -> T | None:
        """Return the statistics of *number* and extend their lifetime; None if they have expired."""
        entry = self._entries.get(number)
        if entry is None or entry.until_s < now_s:
            return None
        entry.is_pinned = True
        entry.until_s = now_s + PINNED_S
        self._tidy(now_s)
        return entry.snapshot

    def _tidy(self, now_s: float) -> None:
        for number, entry in list(self._entries.items()):
            if entry.until_s < now_s:
                del self._entries[number]
        for is_held, most in ((True, MAX_PINNED), (False, MAX_RECENT)):
            group = [number for number, entry in self._entries.items() if entry.is_pinned is is_held]
            group.sort(key=lambda number: self._entries[number].until_s)
            for number in group[: max(0, len(group) - most)]:
                del self._entries[number]
