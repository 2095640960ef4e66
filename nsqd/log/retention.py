"""Retention: the messages of a log that are still wanted, for segment removal and compaction. Pure.

A note is wanted until every checkpoint knows it, however full the disk is: see `knows_notes`.
A message is wanted while a channel must deliver it, or while a policy retains it after all channels have
finished it. A policy retains the newest segments whole, so that retention costs no copy. A segment without
wanted messages is removed, even when older ones are wanted. From a segment with few wanted messages, these
are copied. Neighbours are merged into one file. Its header states the sequence up to which missing messages
were finished and are not lost.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from nsqd.log.gaps import EVERYTHING
from nsqd.log.ranges import PAGE, Ranges, RangeSet, join

# Copying a segment is worth it when at least this share of it is waste ...
_SPARSE: Final = 1 / 2
# ... or, while the log is in use, this share, and there is more waste than is allowed.
_MIN_SPARSE_SHARE: Final = 1 / 8
# So many segments' worth of waste is allowed; the newest segment and a copy being made are two more.
_WASTE_SEGMENTS: Final = 2
# A file of which at most so much is wanted always joins a neighbour that is copied.
_TINY_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class SegmentStats:
    """A closed segment as retention sees it.

    *place* is its place in the log, *size* and *wanted* are bytes of data. Segments of different *kind* are
    not put together.
    """

    place: int
    size: int
    wanted: int
    kind: int = 0

    @property
    def waste(self) -> int:
        return self.size - self.wanted

    @property
    def sparse(self) -> float:
        """The share of it that is waste."""
        return self.waste / self.size if self.size else 0.0


def knows_notes(last_note: int, covered_notes: int) -> bool:
    """Whether a file is not needed for its notes, of which the newest has the number *last_note*.

    Every checkpoint that a start may use knows the notes up to *covered_notes*. If the note about a new
    channel were removed earlier, a start from an older checkpoint would not know the channel or its pending
    messages.
    """
    return last_note <= covered_notes


def is_enough(closed_bytes: int, segment_bytes: int, *, resting: bool) -> bool:
    """Whether closed segments have enough bytes to check how much of them is wanted.

    When the log is *resting*, any number of bytes is enough.
    """
    return closed_bytes > (0 if resting else _WASTE_SEGMENTS * segment_bytes)


def plan(
    extents: Sequence[SegmentStats], segment_bytes: int, worth_bytes: int, *, resting: bool
) -> list[list[SegmentStats]]:
    """The runs of neighbours to be put together in one file each; first the run that frees most for its cost.

    *segment_bytes* is the size of a full segment, *worth_bytes* the waste that is worth a copy.
    """
    loose = _loose(extents, segment_bytes, worth_bytes, resting=resting)
    runs: list[list[SegmentStats]] = []
    at = 0
    while at < len(extents):
        if extents[at].place not in loose:
            at += 1
            continue
        run = [extents[at]]
        at += 1
        while at < len(extents) and _joins(run, extents[at], loose, segment_bytes, behind=True):
            run.append(extents[at])
            at += 1
        before = at - len(run) - 1
        while before >= 0 and _joins(run, extents[before], loose, segment_bytes, behind=False):
            if runs and runs[-1][-1] is extents[before]:
                break
            run.insert(0, extents[before])
            before -= 1
        runs.append(run)
    return sorted(runs, key=lambda run: sum(one.wanted for one in run) / sum(one.waste for one in run))


def _loose(
    extents: Sequence[SegmentStats], segment_bytes: int, worth_bytes: int, *, resting: bool
) -> set[int]:
    """The places of the segments of which something is to be removed."""
    if not resting and sum(one.waste for one in extents) <= _WASTE_SEGMENTS * segment_bytes:
        # Waiting is better: soon fewer messages are wanted, and the copy is smaller or needless.
        return {one.place for one in extents if one.waste and not one.wanted}
    loose = {
        one.place
        for one in extents
        if one.waste and (not one.wanted or (one.sparse >= _SPARSE and one.waste >= worth_bytes))
    }
    rest = sorted(
        (one for one in extents if one.waste and one.place not in loose),
        key=lambda one: one.sparse,
    )
    waste = sum(one.waste for one in rest)
    while rest and waste > _WASTE_SEGMENTS * segment_bytes:
        one = rest.pop()
        if one.sparse < _MIN_SPARSE_SHARE and not resting:
            break
        loose.add(one.place)
        waste -= one.waste
    return loose


def _joins(
    run: list[SegmentStats], one: SegmentStats, loose: set[int], segment_bytes: int, *, behind: bool
) -> bool:
    """Whether a neighbour joins the same file: it is copied anyway, or is small compared with the run."""
    edge = run[-1] if behind else run[0]
    if abs(one.place - edge.place) != 1 or one.kind != edge.kind:
        return False
    wanted = sum(each.wanted for each in run)
    if wanted + one.wanted > segment_bytes and one.wanted:
        return False
    return one.place in loose or one.wanted <= max(_TINY_BYTES, wanted)


_ABSENT: Final = re.compile(rb"\0+")


class WantedPositions:
    """Which messages of a log are wanted at one moment, range by range, in any thread.

    As a list of ranges, a million scattered messages would need an object each, and no other thread could
    run while these are made. So this stores its source: the finished messages of each channel.
    """

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
        """Ranges that may have wanted positions: the start of each, and for each position 0 if wanted."""
        backlogs = [one for one in self._backlogs if one[1] > start]
        while start < end and backlogs:
            # Positions known to be finished by all are skipped here.
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
