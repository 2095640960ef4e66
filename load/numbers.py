"""Sets of message numbers as ranges ``[first, end)``: a million of them in order are two integers. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

Range = Sequence[int]


def ranges_of(numbers: Iterable[int]) -> list[list[int]]:
    """Return the numbers as ranges in order; a number that occurs twice is in two of them."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number:
            found[-1][1] = number + 1
        else:
            found.append([number, number + 1])
    return found


def count(ranges: Iterable[Range]) -> int:
    return sum(end - first for first, end in ranges)


def each(ranges: Iterable[Range]) -> Iterator[int]:
    for first, end in ranges:
        yield from range(first, end)


class NumberSet:
    """Disjoint ranges in order. Adding one takes time for the ranges it touches and for moving later ones."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for first, end in ranges:
            self.add(first, end)

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._firsts)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number < self._ends[at]

    def ranges(self) -> list[list[int]]:
        return [list(pair) for pair in zip(self._firsts, self._ends, strict=True)]

    def add(self, first: int, end: int) -> list[list[int]]:
        """Add a range; return the parts of it that were there before."""
        # Ranges that touch the new one are joined with it; overlaps are returned.
        left = bisect_left(self._ends, first)
        right = bisect_right(self._firsts, end)
        before = [
            [max(first, self._firsts[at]), min(end, self._ends[at])]
            for at in range(left, right)
            if self._firsts[at] < end and self._ends[at] > first
        ]
        if left < right:
            first, end = min(first, self._firsts[left]), max(end, self._ends[right - 1])
        self._firsts[left:right] = [first]
        self._ends[left:right] = [end]
        return before

    def without(self, *others: "NumberSet") -> list[list[int]]:
        """Return the ranges of this set that are in none of the others."""
        kept = self.ranges()
        for other in others:
            kept = _cut(kept, other.ranges())
        return kept


def _cut(ranges: list[list[int]], away: list[list[int]]) -> list[list[int]]:
    kept: list[list[int]] = []
    at = 0
    for first, end in ranges:
        while at < len(away) and away[at][1] <= first:
            at += 1
        start, look = first, at
        while look < len(away) and away[look][0] < end:
            if start < away[look][0]:
                kept.append([start, away[look][0]])
            start = max(start, away[look][1])
            look += 1
        if start < end:
            kept.append([start, end])
    return kept
