"""Pending messages, in the order in which they are to be delivered."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from typing import Final, TypeAlias

from nsqd.log.gaps import EVERYTHING
from nsqd.log.ranges import Ranges, ranges_of, size_of, within, without

# At most this many consecutive messages are treated like single ones.
SHORT: Final = 8
# Fewer ranges than this are separate entries.
_MAX_SEPARATE_RANGES: Final = 4
# How many messages one step joins: a millisecond's work.
_TOGETHER: Final = 4096


class PendingRange:
    """Pending messages ``start <= seq < end``; with *redelivered* each of them was delivered before."""

    __slots__ = ("end", "redelivered", "start")

    def __init__(self, start: int, end: int, redelivered: bool) -> None:
        self.start = start
        self.end = end
        self.redelivered = redelivered

    def __repr__(self) -> str:
        return f"<PendingRange {self.start}..{self.end}{' redelivered' if self.redelivered else ''}>"

    def __len__(self) -> int:
        return self.end - self.start

    def ranges(self) -> Ranges:
        return [(self.start, self.end)]


class PendingList:
    """Scattered pending messages, in order; with *redelivered* each was delivered before."""

    __slots__ = ("at", "redelivered", "seqs")

    def __init__(self, seqs: list[int], redelivered: bool) -> None:
        self.seqs = seqs
        # Messages before this index have been taken.
        self.at = 0
        self.redelivered = redelivered

    def __repr__(self) -> str:
        return f"<PendingList {len(self)}{' redelivered' if self.redelivered else ''}>"

    def __len__(self) -> int:
        return len(self.seqs) - self.at

    def ranges(self) -> Ranges:
        return ranges_of(self.seqs[self.at :])


Entry: TypeAlias = PendingRange | PendingList


class PendingQueue:
    """The entries of one backlog; *count* is how many messages they have."""

    __slots__ = ("count", "entries")

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque()
        self.count = 0

    def append(self, ranges: Ranges, *, redelivered: bool) -> None:
        """Add *ranges* to the tail, in their order; several short ones in a row are one entry."""
        entries = self.entries
        short: list[int] = []
        many = len(ranges) >= _MAX_SEPARATE_RANGES
        for start, end in ranges:
            self.count += end - start
            if many and end - start == 1:
                short.append(start)
                continue
            if many and end - start <= SHORT:
                short.extend(range(start, end))
                continue
            if short:
                entries.append(_entry(short, redelivered))
                short = []
            last = entries[-1] if entries else None
            if isinstance(last, PendingRange) and last.end == start and last.redelivered is redelivered:
                last.end = end
            else:
                entries.append(PendingRange(start, end, redelivered))
        if short:
            entries.append(_entry(short, redelivered))

    def remove(self, ranges: Ranges, limit: int = EVERYTHING) -> int:
        """Remove messages in *ranges*, sorted and merged, until *limit* are removed; returns how many.

        It checks each entry before the last message that is removed.
        """
        entries = self.entries
        kept: list[Entry] = []
        removed = 0
        while entries and removed < limit:
            entry = entries.popleft()
            present = entry.ranges()
            left = without(present, ranges)
            count = len(entry) - size_of(left)
            if not count:
                kept.append(entry)
                continue
            removed += count
            if isinstance(entry, PendingList):
                seqs = [seq for start, end in left for seq in range(start, end)]
                kept += [_entry(seqs, entry.redelivered)] if seqs else []
            else:
                kept += [PendingRange(start, end, entry.redelivered) for start, end in left]
        entries.extendleft(reversed(kept))
        self.count -= removed
        return removed

    def clear(self) -> None:
        self.entries.clear()
        self.count = 0

    def ranges(self) -> Ranges:
        """The ranges of all messages, in the order in which they are to be delivered."""
        return ranges_in(self.entries)

    def first(self, count: int) -> Ranges:
        """The ranges of the first *count* messages, sorted and merged."""
        found: Ranges = []
        for entry in self.entries:
            if count <= 0:
                break
            for start, end in entry.ranges():
                if count > 0:
                    found.append((start, min(end, start + count)))
                    count -= end - start
        return sorted(found)

    def below(self, seq: int) -> Ranges:
        """The ranges of the messages below *seq*, in order."""
        return sorted(part for entry in self.entries for part in within(entry.ranges(), 0, seq))

    def count_below(self, seq: int) -> int:
        """How many messages are below *seq*."""
        count = 0
        for entry in self.entries:
            if isinstance(entry, PendingList):
                count += max(0, bisect_left(entry.seqs, seq) - entry.at)
            elif entry.start < seq:
                count += min(entry.end, seq) - entry.start
        return count

    def gather(self, below: int) -> None:
        """Join the short entries at the front that are below *below* and in the order of the log.

        So each place is read only once, and the order of delivery stays as it is.
        """
        entries = self.entries
        redelivered = entries[0].redelivered
        seqs: list[int] = []
        while entries and len(seqs) < _TOGETHER:
            entry = entries[0]
            if isinstance(entry, PendingList) or len(entry) > SHORT or entry.start >= below:
                break
            if entry.redelivered is not redelivered or (seqs and entry.start <= seqs[-1]):
                break
            seqs.extend(range(entry.start, entry.end))
            entries.popleft()
        if seqs:
            entries.appendleft(_entry(seqs, redelivered))

    def split_first(self, entry: PendingList) -> None:
        """Make the first message of *entry*, which is the first, an entry of its own."""
        seq = entry.seqs[entry.at]
        entry.at += 1
        if not len(entry):
            self.entries.popleft()
        self.entries.appendleft(PendingRange(seq, seq + 1, entry.redelivered))


def ranges_in(entries: Iterable[Entry]) -> Ranges:
    """The ranges of the messages of some entries, in the order in which they are to be delivered."""
    return [part for entry in entries for part in entry.ranges()]


def _entry(seqs: list[int], redelivered: bool) -> Entry:
    """One entry for these sorted messages."""
    if seqs[-1] - seqs[0] == len(seqs) - 1:
        return PendingRange(seqs[0], seqs[-1] + 1, redelivered)
    return PendingList(seqs, redelivered)
