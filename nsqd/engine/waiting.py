"""Messages that wait together, some of which are taken at a time: in a row, or from here and there."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from nsqd.log.ranges import Ranges, ranges_of

# Of so few messages that follow one another each is taken by itself.
SHORT: Final = 8


class Span:
    """Messages ``start <= seq < end`` waiting; with *again* each of them was delivered before."""

    __slots__ = ("again", "end", "start")

    def __init__(self, start: int, end: int, again: bool) -> None:
        self.start = start
        self.end = end
        self.again = again

    def __repr__(self) -> str:
        return f"<Span {self.start}..{self.end}{' again' if self.again else ''}>"

    def __len__(self) -> int:
        return self.end - self.start

    def cut(self, count: int) -> Ranges:
        """Take the first *count* messages out; returns which those are."""
        return self.cut_below(self.start + count)

    def cut_below(self, seq: int) -> Ranges:
        """Take what lies below *seq* out; returns what that is."""
        start, end = self.start, min(self.end, seq)
        if start >= end:
            return []
        self.start = end
        return [(start, end)]


class Scattered:
    """Messages from here and there that wait together, in order; with *again* each was delivered before."""

    __slots__ = ("again", "at", "seqs")

    def __init__(self, seqs: list[int], again: bool) -> None:
        self.seqs = seqs
        # Those before it have been taken.
        self.at = 0
        self.again = again

    def __repr__(self) -> str:
        return f"<Scattered {len(self)}{' again' if self.again else ''}>"

    def __len__(self) -> int:
        return len(self.seqs) - self.at

    def rest(self) -> list[int]:
        return self.seqs[self.at :]

    def cut(self, count: int) -> Ranges:
        """Take the first *count* messages out; returns which those are."""
        gone = self.seqs[self.at : self.at + count]
        self.at += len(gone)
        return ranges_of(gone)

    def cut_below(self, seq: int) -> Ranges:
        """Take what lies below *seq* out; returns what that is."""
        return self.cut(max(0, bisect_left(self.seqs, seq) - self.at))


def together(seqs: list[int], *, again: bool) -> Span | Scattered:
    """These sorted messages as one thing that waits."""
    if seqs[-1] - seqs[0] == len(seqs) - 1:
        return Span(seqs[0], seqs[-1] + 1, again)
    return Scattered(seqs, again)


def ranges_waiting(spans: Iterable[Span | Scattered]) -> Ranges:
    """Which messages these are, in the order in which they are to be delivered."""
    found: Ranges = []
    for span in spans:
        found += ranges_of(span.rest()) if isinstance(span, Scattered) else [(span.start, span.end)]
    return found
