"""Deferred messages by the time at which they fall due.

A run is three numbers: a due time and the messages ``start <= seq < end`` that share it. Messages that were
put off together are one run, so a million messages of some thousand batches are some thousand runs.

Runs are kept in arrays, in the order in which they came: one array for each slot of 67 ms of due time. When a
slot begins, its runs are sorted into ticks of 1 ms, and a tick is released as a whole. So a run costs the
same however many there are, and runs that are far off are not sorted. All of this is done in steps of bounded
size, because a million messages may fall due at one moment.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Final

_SLOT_SHIFT: Final = 26
_TICK_SHIFT: Final = 20
# Runs that are handled in one go: one or two milliseconds.
STEP: Final = 4096
# For so few messages it is faster to search for each of them.
_FEW: Final = 8
# A run in an array: due time, start, end.
_WIDTH: Final = 3


class _Queue:
    """Runs that are taken from the front."""

    __slots__ = ("_at", "_own", "_runs")

    def __init__(self) -> None:
        self._runs = array("Q")
        self._at = 0
        # Nobody else reads the array.
        self._own = True

    def __bool__(self) -> bool:
        return self._at < len(self._runs)

    def put(self, runs: "array[int]") -> None:
        if not self:
            # Others may read this array.
            self._runs, self._at, self._own = runs, 0, False
            return
        if not self._own:
            self._runs, self._at, self._own = self._runs[self._at :], 0, True
        self._runs.extend(runs)

    def take(self, limit: int) -> "array[int]":
        """Take at most *limit* runs from the front."""
        end = min(len(self._runs), self._at + limit * _WIDTH)
        taken = self._runs[self._at : end]
        self._at = end
        return taken

    def remaining(self) -> "array[int]":
        return self._runs[self._at :]

    def become(self, runs: "array[int]") -> None:
        """Replace the runs by these."""
        self._runs, self._at, self._own = runs, 0, False


class _Tick:
    """Runs that fall due within a millisecond, and the last of their due times."""

    __slots__ = ("due_ns", "runs")

    def __init__(self) -> None:
        self.due_ns = 0
        self.runs = array("Q")


class Deferred:
    """The deferred messages of one owner; see the module."""

    __slots__ = (
        "_count",
        "_due",
        "_least",
        "_opening",
        "_shared",
        "_slot",
        "_slots",
        "_slots_at",
        "_ticks",
        "_ticks_at",
        "_wide",
    )

    def __init__(self) -> None:
        self._count = 0
        # Runs that are far off, by slot; and the numbers of those slots as a heap.
        self._slots: dict[int, array[int]] = {}
        self._slots_at: list[int] = []
        # Slots whose arrays a reader may be using.
        self._shared: set[int] = set()
        # The last slot whose time has come, and those of its runs that are not in ticks yet.
        self._slot = -1
        self._opening = _Queue()
        self._ticks: dict[int, _Tick] = {}
        self._ticks_at: list[int] = []
        # Released, but not taken yet.
        self._due = _Queue()
        # No message has a lower sequence.
        self._least = 0
        # There may be runs of more than one message.
        self._wide = False

    def __len__(self) -> int:
        """How many messages there are."""
        return self._count

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Due time and sequence of each message, in no order."""
        for due_ns, start, end in self.runs():
            for seq in range(start, end):
                yield due_ns, seq

    def put(self, start: int, end: int, due_ns: int) -> None:
        """Messages ``start <= seq < end`` are due at *due_ns*."""
        if not self._count or start < self._least:
            self._least = start
        if end - start > 1:
            self._wide = True
        self._count += end - start
        due_ns = max(0, due_ns)
        slot = due_ns >> _SLOT_SHIFT
        if slot <= self._slot:
            self._put_near(start, end, due_ns)
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
            self._wide = True
        else:
            runs.extend((due_ns, start, end))

    def take_due(self, now_ns: int) -> tuple["array[int]", "array[int]"]:
        """Take the starts and ends of ranges whose time has come; when there are very many, not all."""
        self._open(now_ns)
        at = self._ticks_at
        while at and self._ticks[at[0]].due_ns <= now_ns:
            self._due.put(self._ticks.pop(heappop(at)).runs)
        runs = self._due.take(STEP)
        starts, ends = runs[1::_WIDTH], runs[2::_WIDTH]
        self._count -= sum(ends) - sum(starts)
        return starts, ends

    def take_out(self, seqs: set[int]) -> set[int]:
        """Take these messages out; returns those that were deferred.

        Costs a look at every run, in C for a few messages, and a copy of the arrays that hold one of them.
        """
        taken: set[int] = set()
        wanted = sorted(seqs)
        for queue in (self._due, self._opening):
            queue.become(self._without(queue.remaining(), wanted, taken))
        for tick in self._ticks.values():
            tick.runs = self._without(tick.runs, wanted, taken)
        for number, runs in self._slots.items():
            self._slots[number] = self._without(runs, wanted, taken)
        self._count -= len(taken)
        return taken

    def _without(self, runs: "array[int]", wanted: list[int], taken: set[int]) -> "array[int]":
        """The runs without the messages that are *wanted*, which are added to *taken*."""
        starts, ends = runs[1::_WIDTH], runs[2::_WIDTH]
        if not self._wide and len(wanted) <= _FEW and not any(seq in starts for seq in wanted):
            return runs
        left: array[int] = array("Q")
        for due_ns, start, end in zip(runs[0::_WIDTH], starts, ends, strict=True):
            low = bisect_left(wanted, start)
            if low == len(wanted) or wanted[low] >= end:
                left.extend((due_ns, start, end))
                continue
            for seq in wanted[low : bisect_left(wanted, end)]:
                taken.add(seq)
                if start < seq:
                    left.extend((due_ns, start, seq))
                start = seq + 1
            if start < end:
                left.extend((due_ns, start, end))
        return left

    def drop_below(self, seq: int) -> None:
        """Forget messages below *seq*; costs nothing when there are none."""
        if not self._count or seq <= self._least:
            return
        runs = list(self.runs())
        self.clear()
        for due_ns, start, end in runs:
            if end > seq:
                self.put(max(start, seq), end, due_ns)

    def next_due_ns(self) -> int | None:
        """When :meth:`take_due` has something to do; None when nothing is deferred."""
        if not self._count:
            return None
        if self._due or self._opening:
            return self._slot << _SLOT_SHIFT
        if self._ticks_at:
            due_ns = self._ticks[self._ticks_at[0]].due_ns
            # A slot may begin earlier, with a run that is due earlier.
            return min(due_ns, self._slots_at[0] << _SLOT_SHIFT) if self._slots_at else due_ns
        return self._slots_at[0] << _SLOT_SHIFT if self._slots_at else None

    def first_due_ns(self) -> int:
        """The earliest due time; something must be deferred."""
        return min(min(runs[0::_WIDTH]) for runs in self.snapshot() if runs)

    def snapshot(self) -> "list[array[int]]":
        """All runs as they are now, in arrays that do not change any more, for readers in a thread.

        Arrays of slots that are far off are copied only when something is added to them.
        """
        near = [
            self._due.remaining(),
            *(tick.runs[:] for tick in self._ticks.values()),
            self._opening.remaining(),
        ]
        self._shared.update(self._slots)
        return near + list(self._slots.values())

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Due time, start and end of each run, in no order."""
        return runs_in(self.snapshot())

    def clear(self) -> None:
        # A compiled __init__ that is called again does not release the values of the attributes.
        self._count = self._least = 0
        self._slots, self._slots_at = {}, []
        self._shared = set()
        self._slot = -1
        self._opening, self._due = _Queue(), _Queue()
        self._ticks, self._ticks_at = {}, []
        self._wide = False

    def _open(self, now_ns: int) -> None:
        """Sort runs that are due soon into ticks, as many as one step takes."""
        left = STEP
        while left > 0:
            if not self._opening:
                if not self._slots_at or self._slots_at[0] << _SLOT_SHIFT > now_ns:
                    return
                self._slot = heappop(self._slots_at)
                self._shared.discard(self._slot)
                self._opening.put(self._slots.pop(self._slot))
            runs = self._opening.take(left)
            left -= len(runs) // _WIDTH
            for due_ns, start, end in zip(runs[0::_WIDTH], runs[1::_WIDTH], runs[2::_WIDTH], strict=True):
                self._put_near(start, end, due_ns)

    def _put_near(self, start: int, end: int, due_ns: int) -> None:
        number = due_ns >> _TICK_SHIFT
        tick = self._ticks.get(number)
        if tick is None:
            tick = self._ticks[number] = _Tick()
            heappush(self._ticks_at, number)
        tick.due_ns = max(tick.due_ns, due_ns)
        runs = tick.runs
        if runs and runs[-1] == start and runs[-_WIDTH] == due_ns:
            runs[-1] = end
            self._wide = True
        else:
            runs.extend((due_ns, start, end))


def runs_in(arrays: "Iterable[array[int]]") -> Iterator[tuple[int, int, int]]:
    """Due time, start and end of each run in arrays of :meth:`Deferred.snapshot`."""
    for runs in arrays:
        yield from zip(runs[0::_WIDTH], runs[1::_WIDTH], runs[2::_WIDTH], strict=True)
