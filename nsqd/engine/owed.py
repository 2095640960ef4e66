"""What somebody still has to be given: ranges of sequence numbers, and deferred messages by due time."""

from bisect import bisect_left, bisect_right
from collections import deque
from typing import Final

from nsqd.engine.deferred import Deferred

UNLIMITED: Final = 1 << 62

Ranges = list[tuple[int, int]]


def merged(ranges: Ranges) -> Ranges:
    """The same sequences as sorted ranges that neither touch nor overlap."""
    result: Ranges = []
    for start, end in sorted(ranges):
        if result and start <= result[-1][1]:
            if end > result[-1][1]:
                result[-1] = (result[-1][0], end)
        elif start < end:
            result.append((start, end))
    return result


def within(ranges: Ranges, first: int, end: int) -> Ranges:
    """The parts of sorted *ranges* that lie in ``first <= seq < end``."""
    at = max(0, bisect_right(ranges, (first, first)) - 1)
    found: Ranges = []
    while at < len(ranges) and ranges[at][0] < end:
        low, high = max(ranges[at][0], first), min(ranges[at][1], end)
        if low < high:
            found.append((low, high))
        at += 1
    return found


class Span:
    """Messages ``start <= seq < end`` waiting; with *again* each of them was delivered before."""

    __slots__ = ("again", "end", "start")

    def __init__(self, start: int, end: int, again: bool) -> None:
        self.start = start
        self.end = end
        self.again = again

    def __repr__(self) -> str:
        return f"<Span {self.start}..{self.end}{' again' if self.again else ''}>"


class Owed:
    """Waiting and deferred messages, in the order in which they are to be delivered.

    A channel is one with consumers; a topic has one for what was published before its first channel or
    while it is paused.
    """

    __slots__ = ("attempts", "deferred", "depth", "limit", "pending")

    def __init__(self, limit: int = UNLIMITED) -> None:
        """*limit* bounds what waits; messages beyond it are dropped, as an ephemeral channel does."""
        self.pending: deque[Span] = deque()
        self.depth = 0
        self.limit = limit
        self.deferred = Deferred()
        # How often a message was delivered that came back; one that never did has no entry.
        self.attempts: dict[int, int] = {}

    def extend(self, start: int, end: int) -> None:
        """New messages ``start <= seq < end`` wait at the tail."""
        if self.depth + end - start > self.limit:
            end = start + max(0, self.room())
            if end <= start:
                return
        pending = self.pending
        if pending:
            last = pending[-1]
            if last.end == start and not last.again:
                last.end = end
                self.depth += end - start
                return
        pending.append(Span(start, end, again=False))
        self.depth += end - start

    def room(self) -> int:
        return self.limit - self.depth

    def defer(self, start: int, end: int, due_ns: int) -> None:
        """Messages ``start <= seq < end`` wait from that time on."""
        self.deferred.put(start, end, due_ns)

    def put_back(self, start: int, end: int) -> None:
        """Messages that were delivered before wait again, behind what already waits."""
        if self.depth + end - start > self.limit:
            kept = start + max(0, self.room())
            self.forget_attempts(kept, end)
            end = kept
            if end <= start:
                return
        pending = self.pending
        if pending and pending[-1].again and pending[-1].end == start:
            pending[-1].end = end
        else:
            pending.append(Span(start, end, again=True))
        self.depth += end - start

    def take_out(self, seqs: set[int]) -> set[int]:
        """Let these neither wait nor be deferred any longer; returns those that were either."""
        wanted = sorted(seqs)
        taken: set[int] = set()
        kept: deque[Span] = deque()
        for span in self.pending:
            start = span.start
            for seq in wanted[bisect_left(wanted, span.start) : bisect_left(wanted, span.end)]:
                taken.add(seq)
                if start < seq:
                    kept.append(Span(start, seq, span.again))
                start = seq + 1
            if start == span.start:
                kept.append(span)
            elif start < span.end:
                kept.append(Span(start, span.end, span.again))
        self.pending = kept
        self.depth -= len(taken)
        rest = seqs - taken
        if rest and self.deferred:
            # They were deferred before, and their time had come.
            taken |= self.deferred.take_out(rest)
        return taken

    def release_due(self, now_ns: int) -> int:
        """Deferred messages whose time has come wait at the tail; returns how many.

        When very many are due at once, some are left for the next call.
        """
        if not self.deferred:
            return 0
        attempts = self.attempts
        released = 0
        for start, end in self.deferred.take_due(now_ns):
            released += end - start
            if not attempts:
                self.extend(start, end)
                continue
            for seq in range(start, end):
                if seq in attempts:
                    self.put_back(seq, seq + 1)
                else:
                    self.extend(seq, seq + 1)
        return released

    def take_over(self, other: "Owed") -> None:
        """Owe also what *other* owes, behind what already waits."""
        self.attempts.update(other.attempts)
        for span in other.pending:
            if span.again:
                self.put_back(span.start, span.end)
            else:
                self.extend(span.start, span.end)
        self.deferred.add(other.deferred)

    def drop_below(self, seq: int) -> None:
        """Owe nothing below *seq* any more."""
        kept: deque[Span] = deque()
        for span in self.pending:
            if span.end <= seq:
                self.depth -= span.end - span.start
                continue
            if span.start < seq:
                self.depth -= seq - span.start
                span.start = seq
            kept.append(span)
        self.pending = kept
        self.deferred.drop_below(seq)
        self.attempts = {kept_seq: count for kept_seq, count in self.attempts.items() if kept_seq >= seq}

    def clear(self) -> None:
        self.pending.clear()
        self.depth = 0
        self.deferred.clear()
        self.attempts.clear()

    def forget_attempts(self, start: int, end: int) -> None:
        attempts = self.attempts
        if attempts:
            for seq in range(start, end):
                attempts.pop(seq, None)

    def count_below(self, seq: int) -> int:
        """How many waiting messages have a sequence below *seq*."""
        return sum(min(span.end, seq) - span.start for span in self.pending if span.start < seq)

    def ranges(self) -> Ranges:
        """All that is owed, in no order."""
        waiting = [(span.start, span.end) for span in self.pending]
        return waiting + [(start, end) for _, start, end in self.deferred.runs()]

    def lowest(self) -> int | None:
        """The lowest sequence that is waiting or deferred."""
        waiting = min((span.start for span in self.pending), default=None)
        deferred = self.deferred.lowest()
        if waiting is None or deferred is None:
            return deferred if waiting is None else waiting
        return min(waiting, deferred)
