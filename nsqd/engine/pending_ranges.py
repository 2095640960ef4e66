"""Messages that wait together, consecutive or scattered, some of which are taken at a time."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from nsqd.log.ranges import Ranges, ranges_of

# Up to so many consecutive messages are treated like single ones.
SHORT: Final = 8


class PendingRange:
    """Messages ``start <= seq < end`` waiting; with *redelivered* each of them was delivered before."""

    __slots__ = ("end", "redelivered", "start")

    def __init__(self, start: int, end: int, redelivered: bool) -> None:
        self.start = start
        self.end = end
        self.redelivered = redelivered

    def __repr__(self) -> str:
        return f"<PendingRange {self.start}..{self.end}{' redelivered' if self.redelivered else ''}>"

    def __len__(self) -> int:
        return self.end - self.start

    def cut(self, count: int) -> Ranges:
        """Take the first *count* messages out; returns which those are."""
        return self.cut_below(self.start + count)

    def cut_below(self, seq: int) -> Ranges:
        """Take the messages below *seq* out; returns which those are."""
        start, end = self.start, min(self.end, seq)
        if start >= end:
            return []
        self.start = end
        return [(start, end)]


class PendingList:
    """Messages from here and there that wait together, in order; with *redelivered* each was delivered
    before.
    """

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

    def remaining(self) -> list[int]:
        return self.seqs[self.at :]

    def cut(self, count: int) -> Ranges:
        """Take the first *count* messages out; returns which those are."""
        gone = self.seqs[self.at : self.at + count]
        self.at += len(gone)
        return ranges_of(gone)

    def cut_below(self, seq: int) -> Ranges:
        """Take the messages below *seq* out; returns which those are."""
        return self.cut(max(0, bisect_left(self.seqs, seq) - self.at))


def together(seqs: list[int], *, redelivered: bool) -> PendingRange | PendingList:
    """One waiting entry for these sorted messages."""
    if seqs[-1] - seqs[0] == len(seqs) - 1:
        return PendingRange(seqs[0], seqs[-1] + 1, redelivered)
    return PendingList(seqs, redelivered)


def ranges_waiting(spans: Iterable[PendingRange | PendingList]) -> Ranges:
    """The ranges of the messages in *spans*, in the order in which they are to be delivered."""
    found: Ranges = []
    for span in spans:
        found += ranges_of(span.remaining()) if isinstance(span, PendingList) else [(span.start, span.end)]
    return found
