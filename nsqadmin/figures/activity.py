"""What each consumer does between two looks: how fast it finishes, and since when it has not; PURE.

nsqd counts what a consumer has finished but not when. So the time is that of the look at which the count was
found to have changed, and for one that has not changed it is at least the time since the first look.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

# Consumers somebody looked at lately; the rest is forgotten.
MOST_CONSUMERS: Final = 20_000
# A rate over less than this is that of a batch.
_LEAST_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class Activity:
    """Messages finished each second, and for how long none was; None where one look is not enough."""

    rate: float | None = None
    silent_s: float | None = None


UNKNOWN: Final = Activity()


@dataclass(slots=True)
class _Seen:
    finished: int
    at_s: float
    # When it finished something last, as far as was seen.
    moved_s: float
    rate: float | None = None


@dataclass(slots=True)
class ActivityBook:
    _seen: OrderedDict[tuple[str, ...], _Seen] = field(default_factory=OrderedDict)

    def note(self, consumer: tuple[str, ...], finished: int, now_s: float) -> Activity:
        """Take in what *consumer* has finished so far, and return what it does."""
        seen = self._seen.get(consumer)
        if seen is None or finished < seen.finished:
            self._seen[consumer] = _Seen(finished, now_s, now_s)
            while len(self._seen) > MOST_CONSUMERS:
                self._seen.popitem(last=False)
            return UNKNOWN
        self._seen.move_to_end(consumer)
        passed_s = now_s - seen.at_s
        if passed_s >= _LEAST_S:
            seen.rate = (finished - seen.finished) / passed_s
            if finished > seen.finished:
                seen.moved_s = now_s
            seen.finished, seen.at_s = finished, now_s
        elif finished > seen.finished:
            seen.moved_s = now_s
        if seen.rate is None:
            return UNKNOWN
        return Activity(seen.rate, now_s - seen.moved_s)
