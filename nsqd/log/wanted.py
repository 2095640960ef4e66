"""Which messages of a log are wanted at one moment, asked range by range, in any thread. Pure.

As a list of ranges, a million scattered messages would need an object each, and no other thread could run
while these are made. So this keeps what it is computed from: what each of those who are pending messages has
finished.
"""

import re
from collections.abc import Iterator
from typing import Final

from nsqd.log.gaps import EVERYTHING
from nsqd.log.ranges import PAGE, Ranges, RangeSet, join

_ABSENT: Final = re.compile(rb"\0+")


class WantedPositions:
    """See the module."""

    def __init__(self, backlogs: list[tuple[RangeSet, int]], log_start: int = EVERYTHING) -> None:
        """Each of those *backlogs* has finished a set of positions, and is pending nothing from a given end
        on.

        The sets must not be changed any more. From *log_start* on all is wanted, even if it is finished.
        """
        self._backlogs = backlogs
        self._log_start = log_start

    def totals(self, start: int, end: int) -> tuple[int, int]:
        """How many positions in ``start <= position < end`` are wanted, and in about how many ranges."""
        kept = max(start, min(end, self._log_start))
        count, ranges = end - kept, int(kept < end)
        for _, column in self._columns(start, kept):
            count += column.count(0)
            ranges += column.count(b"\1\0") + column.startswith(b"\0")
        return count, ranges

    def ranges(self, start: int, end: int) -> Ranges:
        """The wanted positions in ``start <= position < end`` as ranges, sorted and merged."""
        kept = max(start, min(end, self._log_start))
        found: Ranges = []
        for low, column in self._columns(start, kept):
            for absent in _ABSENT.finditer(column):
                join(found, low + absent.start(), low + absent.end())
        if kept < end:
            join(found, kept, end)
        return found

    def _columns(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Stretches in which anything may be wanted: where each begins, and for each position 0 if wanted."""
        backlogs = [one for one in self._backlogs if one[1] > start]
        while start < end and backlogs:
            # What is known at once to be finished by all is passed over at once.
            behind = min(
                EVERYTHING if start >= stop else finished.solid(start) for finished, stop in backlogs
            )
            if behind > start:
                start = behind
                continue
            high = min(end, (start // PAGE + 1) * PAGE)
            columns = [
                finished.column(start, min(high, stop)).ljust(high - start, b"\1")
                for finished, stop in backlogs
                if start < stop
            ]
            yield start, columns[0] if len(columns) == 1 else _all_have(columns)
            start = high


def _all_have(columns: list[bytes]) -> bytes:
    both = int.from_bytes(columns[0], "big")
    for column in columns[1:]:
        both &= int.from_bytes(column, "big")
    return both.to_bytes(len(columns[0]), "big")
