"""End-to-end latency of finished messages: exact quantiles over a sliding window.

The window has two halves. When the newer half has had its share of the time, it becomes the older one and a
new one begins. So the quantiles cover between half a window and a whole one, as in the original. A half
stores a bounded number of samples: all of them until it is full. Then each new one replaces an earlier one.
"""

from typing import Any, Final

# Percentile 99.9 of this many samples still rests on 16 of them.
MAX_SAMPLES: Final = 16_384
# Where a sample goes in a full half: steps that have no common divisor with its size visit all places
# equally.
_STRIDE: Final = 6_151

NO_LATENCY: Final[dict[str, Any]] = {"count": 0, "percentiles": None}


class Latency:
    """The latencies of one channel, in nanoseconds."""

    __slots__ = ("_counts", "_half_ns", "_halves", "_switch_ns", "quantiles")

    def __init__(self, quantiles: tuple[float, ...], window_ns: int, now_ns: int) -> None:
        self.quantiles = quantiles
        self._half_ns = max(1, window_ns // 2)
        self._switch_ns = now_ns + self._half_ns
        self._halves: tuple[list[int], list[int]] = ([], [])
        self._counts = (0, 0)

    def add(self, latency_ns: int, now_ns: int) -> None:
        self._advance(now_ns)
        samples = self._halves[1]
        if len(samples) < MAX_SAMPLES:
            samples.append(latency_ns)
        else:
            samples[self._counts[1] * _STRIDE % MAX_SAMPLES] = latency_ns
        self._counts = (self._counts[0], self._counts[1] + 1)

    def snapshot(self, now_ns: int) -> dict[str, Any]:
        return self.merged([self], now_ns)

    def merged(self, latencies: "list[Latency]", now_ns: int) -> dict[str, Any]:
        """The quantiles over the samples of several channels."""
        samples: list[int] = []
        count = 0
        for latency in latencies:
            latency._advance(now_ns)
            samples += latency._halves[0] + latency._halves[1]
            count += sum(latency._counts)
        samples.sort()
        return {
            "count": count,
            "percentiles": [
                {"quantile": quantile, "value": _quantile(samples, quantile)} for quantile in self.quantiles
            ],
        }

    def _advance(self, now_ns: int) -> None:
        if now_ns < self._switch_ns:
            return
        stale = now_ns >= self._switch_ns + self._half_ns
        self._halves = ([], []) if stale else (self._halves[1], [])
        self._counts = (0, 0) if stale else (self._counts[1], 0)
        self._switch_ns = now_ns + self._half_ns


def _quantile(ordered: list[int], quantile: float) -> int:
    """The smallest sample that at least this share of the samples does not exceed; 0 without samples."""
    if not ordered:
        return 0
    rank = -int(-quantile * len(ordered) // 1)
    return ordered[min(len(ordered), max(1, rank)) - 1]
