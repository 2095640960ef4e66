"""Deferred messages by the time at which they fall due.

A run is three numbers: a due time and the messages ``start <= seq < end`` that share it. Messages that were
deferred together are one run, so a million messages of some thousand batches are some thousand runs.

Runs are stored in arrays, in order of arrival: one array for each slot of 67 ms of due time. When a
slot begins, its runs are sorted. So a run costs the same however many there are. A slot with very many runs
is sorted in parts of bounded size; then a run of a later part can be late by the length of the slot.
"""

from array import array
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Final

from nsqd.log.gaps import EVERYTHING
from nsqd.log.ranges import Ranges, without

_SLOT_SHIFT: Final = 26
# Bits of a due time below a millisecond.
_TICK: Final = (1 << 20) - 1
# Runs that one step releases: one or two milliseconds.
STEP: Final = 4096
# Runs that one step sorts: some ten milliseconds.
_MAX_SORTED_PER_TURN: Final = 1 << 15
# A run in an array: due time, start, end.
_WIDTH: Final = 3

# Due time, start, end.
_Run = tuple[int, int, int]


class Deferred:
    """The deferred messages of one backlog; see the module. *count* is how many there are."""

    __slots__ = ("_at", "_open", "_opening", "_shared", "_slot", "_slots", "_slots_at", "count")

    def __init__(self) -> None:
        self.count = 0
        # Runs that are far off, by slot; and the numbers of those slots as a heap.
        self._slots: dict[int, array[int]] = {}
        self._slots_at: list[int] = []
        # Slots whose arrays a reader may be using.
        self._shared: set[int] = set()
        # The last slot that has begun: its sorted runs, of which those before `_at` are taken, and the part
        # that is not sorted yet.
        self._slot = -1
        self._open: list[_Run] = []
        self._at = 0
        self._opening: array[int] = array("Q")

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Due time and sequence of each message, in no order."""
        for due_ns, start, end in self.runs():
            for seq in range(start, end):
                yield due_ns, seq

    def add(self, start: int, end: int, due_ns: int) -> None:
        """Messages ``start <= seq < end`` are due at *due_ns*."""
        self.count += end - start
        due_ns = max(0, due_ns)
        slot = due_ns >> _SLOT_SHIFT
        if slot <= self._slot:
            insort(self._open, (due_ns, start, end), self._at)
            return
        runs = self._slots.get(slot)
        if runs is not None and slot in self._shared:
            self._shared.discard(slot)
            runs = self._slots[slot] = runs[:]
        if runs is None:
            self._slots[slot] = array("Q", (due_ns, start, end))
            heappush(self._slots_at, slot)
        elif runs and runs[-1] == start and runs[-_WIDTH] == due_ns:
            runs[-1] = end
        else:
            runs.extend((due_ns, start, end))

    def take_due(self, now_ns: int) -> Ranges:
        """Take messages whose time has come, at most `STEP` runs; returns their ranges, sorted."""
        found: list[_Run] = []
        while len(found) < STEP and self._open_slot(now_ns):
            end = bisect_right(self._open, (now_ns, EVERYTHING, EVERYTHING), self._at)
            end = min(end, self._at + STEP - len(found))
            if end == self._at:
                break
            found += self._open[self._at : end]
            self._at = end
        ranges = sorted([(start, end) for _, start, end in found])
        self.count -= sum([end - start for start, end in ranges])
        return ranges

    def remove(self, ranges: Ranges) -> int:
        """Remove messages in *ranges*, sorted and merged; returns how many. It checks each run."""
        if not (self.count and ranges):
            return 0
        before = self.count
        near = [part for run in self._open[self._at :] for part in _without(run, ranges)]
        self._open, self._at = near, 0
        self._opening = _array_without(self._opening, ranges)
        for slot, runs in self._slots.items():
            left = _array_without(runs, ranges)
            if left is not runs:
                self._slots[slot] = left
                self._shared.discard(slot)
        self.count = sum([end - start for _, start, end in near])
        for runs in (self._opening, *self._slots.values()):
            self.count += sum(runs[2::_WIDTH]) - sum(runs[1::_WIDTH])
        if not self.count:
            self.clear()
        return before - self.count

    def next_due_ns(self) -> int | None:
        """When :meth:`take_due` has something to do; None when nothing is deferred.

        It is the last due time of a millisecond, so that not each message wakes the process.
        """
        if not self.count:
            return None
        if self._at < len(self._open):
            tick_end = (self._open[self._at][0] | _TICK, EVERYTHING, EVERYTHING)
            due_ns = self._open[bisect_right(self._open, tick_end, self._at) - 1][0]
            # A slot may begin earlier, with a run that is due earlier.
            return min(due_ns, self._slots_at[0] << _SLOT_SHIFT) if self._slots_at else due_ns
        return (self._slot if self._opening else self._slots_at[0]) << _SLOT_SHIFT

    def first_due_ns(self) -> int:
        """The earliest due time; something must be deferred."""
        return min(min(runs[0::_WIDTH]) for runs in self.snapshot() if runs)

    def snapshot(self) -> "list[array[int]]":
        """All runs as they are now, in arrays that do not change any more, for readers in a thread.

        Arrays of slots that are far off are copied only when something is added to them.
        """
        near: array[int] = array("Q")
        for run in self._open[self._at :]:
            near.extend(run)
        self._shared.update(self._slots)
        return [near, self._opening, *self._slots.values()]

    def runs(self) -> Iterator[_Run]:
        """Due time, start and end of each run, in no order."""
        return runs_in(self.snapshot())

    def clear(self) -> None:
        self.count = 0
        self._slots, self._slots_at, self._shared = {}, [], set()
        self._slot = -1
        self._open, self._at, self._opening = [], 0, array("Q")

    def _open_slot(self, now_ns: int) -> bool:
        """Sort the runs of the next slots that have begun, until there is one; False when there is none."""
        while self._at >= len(self._open):
            self._open, self._at = [], 0
            if not self._opening:
                if not self._slots_at or self._slots_at[0] << _SLOT_SHIFT > now_ns:
                    return False
                self._slot = heappop(self._slots_at)
                self._shared.discard(self._slot)
                self._opening = self._slots.pop(self._slot)
            size = _MAX_SORTED_PER_TURN * _WIDTH
            runs, self._opening = self._opening[:size], self._opening[size:]
            self._open = sorted(runs_in([runs]))
        return True


def _array_without(runs: "array[int]", ranges: Ranges) -> "array[int]":
    """The runs without *ranges*: the same array if it has none of them."""
    starts, ends = runs[1::_WIDTH], runs[2::_WIDTH]
    first, last = ranges[0][0], ranges[-1][1]
    # Few messages are mostly removed from among very many.
    if not any(start < last and end > first for start, end in zip(starts, ends, strict=True)):
        return runs
    left: array[int] = array("Q")
    for run in runs_in([runs]):
        for part in _without(run, ranges):
            left.extend(part)
    return left


def _without(run: _Run, ranges: Ranges) -> list[_Run]:
    """The parts of a run outside *ranges*."""
    due_ns, start, end = run
    return [(due_ns, low, high) for low, high in without([(start, end)], ranges)]


def runs_in(arrays: "Iterable[array[int]]") -> Iterator[_Run]:
    """Due time, start and end of each run in arrays of :meth:`Deferred.snapshot`."""
    for runs in arrays:
        yield from zip(runs[0::_WIDTH], runs[1::_WIDTH], runs[2::_WIDTH], strict=True)
