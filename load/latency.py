"""Times of single messages in buckets 2.5 % wide, which can be added over workers. Pure."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Final

# 2 ** (1/28): a bucket is 2.5 % wide, so a value read from it is within 1.3 %.
_PER_DOUBLING: Final = 28
_SMALLEST_MS: Final = 0.01
_MAX_FILLED: Final = 10_000


class Histogram:
    """Counts how often each time occurred."""

    def __init__(self, buckets: Mapping[str, int] | None = None) -> None:
        self._counts: Counter[int] = Counter()
        if buckets:
            self.merge(buckets)

    def __len__(self) -> int:
        return self._counts.total()

    def record(self, milliseconds: float, times: int = 1) -> None:
        self._counts[_bucket(milliseconds)] += times

    def record_closed_loop(self, milliseconds: float, every_ms: float) -> None:
        """Record a time of a client that sends its next request only after an answer.

        Without the wait it would have sent a request each *every_ms*. The times of those requests are added;
        otherwise a stall of a second would count as one slow request (coordinated omission).
        """
        self.record(milliseconds)
        if every_ms <= 0:
            return
        missed = milliseconds - every_ms
        for _ in range(_MAX_FILLED):
            if missed < every_ms:
                return
            self.record(missed)
            missed -= every_ms

    def merge(self, buckets: Mapping[str, int]) -> None:
        for bucket, times in buckets.items():
            self._counts[int(bucket)] += times

    def buckets(self) -> dict[str, int]:
        """Return the counts in a form that JSON and MessagePack preserve."""
        return {str(bucket): times for bucket, times in sorted(self._counts.items())}

    def percentile(self, percent: float) -> float:
        """Return the time within which *percent* percent of the times lie; 0 if nothing was recorded."""
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
