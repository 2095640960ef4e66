"""Deferred messages by the time at which they fall due.

A run is three numbers: a due time and the messages ``start <= seq < end`` that share it. What was put off
together is one run, so a million messages of some thousand batches are some thousand runs.

Runs lie in the order in which they came, in arrays, by when they fall due: one array for each slot of 67 ms.
When a slot begins, its runs are sorted into ticks of 1 ms, and a tick is released as a whole. So a run costs
the same however many there are, and no work is done for the order of what is far off. All of this goes on in
steps of bounded size, for a million may fall due at one moment.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

_SLOT_SHIFT: Final = 26
_TICK_SHIFT: Final = 20
# Runs that are handled in one go: one or two milliseconds.
STEP: Final = 4096
_UNKNOWN: Final = -1
# A run in an array: due time, start, end.
_WIDTH: Final = 3


class _Queue:
    """Runs that are taken from the front."""

    __slots__ = ("_at", "_runs")

    def __init__(self) -> None:
        self._runs = array("q")
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._runs)

    def put(self, runs: "array[int]") -> None:
        if self._at == len(self._runs):
            self._runs = runs
            self._at = 0
        else:
            self._runs.extend(runs)

    def take(self, limit: int) -> "array[int]":
        """At most so many runs."""
        end = min(len(self._runs), self._at + limit * _WIDTH)
        taken = self._runs[self._at : end]
        self._at = end
        return taken

    def rest(self) -> "array[int]":
        return self._runs[self._at :]


class _Tick:
    """Runs that fall due within a millisecond, and the last of their due times."""

    __slots__ = ("due_ns", "runs")

    def __init__(self) -> None:
        self.due_ns = 0
        self.runs = array("q")


class Deferred:
    """See the module."""

    __slots__ = (
        "_count",
        "_due",
        "_lowest",
        "_opening",
        "_slot",
        "_slots",
        "_slots_at",
        "_ticks",
        "_ticks_at",
    )

    def __init__(self) -> None:
        self._count = 0
        # By slot what is far off; the numbers of those slots as a heap.
        self._slots: dict[int, array[int]] = {}
        self._slots_at: list[int] = []
        # The last slot whose time has come, and what of it is not in ticks yet.
        self._slot = _UNKNOWN
        self._opening = _Queue()
        self._ticks: dict[int, _Tick] = {}
        self._ticks_at: list[int] = []
        # Released, and not taken yet.
        self._due = _Queue()
        # The lowest sequence, _UNKNOWN until somebody asks: a checkpoint asks several times.
        self._lowest = _UNKNOWN

    def __len__(self) -> int:
        """How many messages there are."""
        return self._count

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Due time and sequence of each message, in no order."""
        for due_ns, start, end in self.runs():
            for seq in range(start, end):
                yield due_ns, seq

    def put(self, start: int, end: int, due_ns: int) -> None:
        """Messages ``start <= seq < end`` are due at that time."""
        if not self._count or start < self._lowest:  # _UNKNOWN is below all
            self._lowest = start
        self._count += end - start
        slot = due_ns >> _SLOT_SHIFT
        if slot <= self._slot:
            self._put_near(start, end, due_ns)
            return
        runs = self._slots.get(slot)
        if runs is None:
            self._slots[slot] = array("q", (due_ns, start, end))
            heappush(self._slots_at, slot)
        elif runs[-1] == start and runs[-_WIDTH] == due_ns:
            runs[-1] = end
        else:
            runs.extend((due_ns, start, end))

    def take_due(self, now_ns: int) -> list[tuple[int, int]]:
        """Take ranges whose time has come; not all of them when there are very many."""
        self._open(now_ns)
        at = self._ticks_at
        while at and self._ticks[at[0]].due_ns <= now_ns:
            self._due.put(self._ticks.pop(heappop(at)).runs)
        runs = self._due.take(STEP)
        if not runs:
            return []
        ranges = list(zip(runs[1::_WIDTH], runs[2::_WIDTH], strict=True))
        starts = runs[1::_WIDTH]
        self._count -= sum(runs[2::_WIDTH]) - sum(starts)
        if min(starts) == self._lowest:
            self._lowest = _UNKNOWN
        return ranges

    def take_out(self, seqs: set[int]) -> set[int]:
        """Let these be deferred no longer; returns those that were."""
        taken: set[int] = set()
        wanted = sorted(seqs)
        runs = self.runs()
        self.clear()
        for due_ns, start, end in runs:
            for seq in wanted[bisect_left(wanted, start) : bisect_left(wanted, end)]:
                taken.add(seq)
                if start < seq:
                    self.put(start, seq, due_ns)
                start = seq + 1
            if start < end:
                self.put(start, end, due_ns)
        return taken

    def drop_below(self, seq: int) -> None:
        """Forget what is below *seq*."""
        runs = self.runs()
        self.clear()
        for due_ns, start, end in runs:
            if end > seq:
                self.put(max(start, seq), end, due_ns)

    def add(self, other: "Deferred") -> None:
        """Put off what *other* does, too."""
        for due_ns, start, end in other.runs():
            self.put(start, end, due_ns)

    def next_due_ns(self) -> int | None:
        """When :meth:`take_due` has something to do; None when nothing is deferred."""
        if not self._count:
            return None
        if self._due or self._opening:
            return self._slot << _SLOT_SHIFT
        if self._ticks_at:
            due_ns = self._ticks[self._ticks_at[0]].due_ns
            # A slot may begin before that, with something that is due earlier.
            return min(due_ns, self._slots_at[0] << _SLOT_SHIFT) if self._slots_at else due_ns
        return self._slots_at[0] << _SLOT_SHIFT if self._slots_at else None

    def first_due_ns(self) -> int:
        """The earliest due time; there must be one."""
        return min(self.snapshot()[0::_WIDTH])

    def lowest(self) -> int | None:
        """The lowest sequence."""
        if not self._count:
            return None
        if self._lowest == _UNKNOWN:
            self._lowest = min(self.snapshot()[1::_WIDTH])
        return self._lowest

    def snapshot(self) -> "array[int]":
        """A copy of all runs; for whoever goes through them in a thread."""
        whole = self._due.rest()
        for tick in self._ticks.values():
            whole.extend(tick.runs)
        whole.extend(self._opening.rest())
        for runs in self._slots.values():
            whole.extend(runs)
        return whole

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Due time, start and end of each run, in no order."""
        runs = self.snapshot()
        return zip(runs[0::_WIDTH], runs[1::_WIDTH], runs[2::_WIDTH], strict=True)

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]

    def _open(self, now_ns: int) -> None:
        """Sort what is due soon into ticks, as far as one step goes."""
        left = STEP
        while left > 0:
            if not self._opening:
                if not self._slots_at or self._slots_at[0] << _SLOT_SHIFT > now_ns:
                    return
                self._slot = heappop(self._slots_at)
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
        else:
            runs.extend((due_ns, start, end))
