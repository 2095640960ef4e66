"""Times of single messages, in buckets of two and a half percent, which add up over workers. Pure."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Final

# 2 ** (1/28): a bucket is 2.5 % wide, so what is read from it is within 1.3 %.
_PER_DOUBLING: Final = 28
_SMALLEST_MS: Final = 0.01
_MOST_FILLED: Final = 10_000


class Histogram:
    """How often which time was seen."""

    def __init__(self, buckets: Mapping[str, int] | None = None) -> None:
        self._counts: Counter[int] = Counter()
        if buckets:
            self.merge(buckets)

    def __len__(self) -> int:
        return self._counts.total()

    def record(self, milliseconds: float, times: int = 1) -> None:
        self._counts[_bucket(milliseconds)] += times

    def record_closed_loop(self, milliseconds: float, every_ms: float) -> None:
        """Record a time of somebody who asks again only when answered.

        While it waited it did not ask, though it would have each *every_ms*: those times are filled in, or a
        stall of a second would count as one slow request (coordinated omission).
        """
        self.record(milliseconds)
        if every_ms <= 0:
            return
        missed = milliseconds - every_ms
        for _ in range(_MOST_FILLED):
            if missed < every_ms:
                return
            self.record(missed)
            missed -= every_ms

    def merge(self, buckets: Mapping[str, int]) -> None:
        for bucket, times in buckets.items():
            self._counts[int(bucket)] += times

    def buckets(self) -> dict[str, int]:
        """In a form that JSON and MessagePack keep."""
        return {str(bucket): times for bucket, times in sorted(self._counts.items())}

    def percentile(self, percent: float) -> float:
        """The time within which so many percent were; 0 when nothing was recorded."""
        left = percent / 100 * self._counts.total()
        for bucket, times in sorted(self._counts.items()):
            left -= times
            if left <= 0:
                return _middle(bucket)
        return 0.0

    def longest(self) -> float:
        return _middle(max(self._counts)) if self._counts else 0.0


def _bucket(milliseconds: float) -> int:
    if milliseconds <= _SMALLEST_MS:
        return 0
    return 1 + int(math.log2(milliseconds / _SMALLEST_MS) * _PER_DOUBLING)


def _middle(bucket: int) -> float:
    return _SMALLEST_MS * 2.0 ** ((bucket - 0.5) / _PER_DOUBLING) if bucket else _SMALLEST_MS
