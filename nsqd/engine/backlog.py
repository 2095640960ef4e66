"""Messages that are still to be delivered: ranges of sequence numbers, and deferred ones by due time."""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import Final

from nsqd.engine.deferred import Deferred
from nsqd.engine.journal import Journal
from nsqd.engine.pending_ranges import SHORT, PendingList, PendingRange, ranges_waiting, together
from nsqd.engine.weight import Weight
from nsqd.log.ranges import Ranges, RangeSet, merged, ranges_of, size_of, within, without

UNLIMITED: Final = 1 << 62
# Fewer scattered messages than this wait as separate ranges.
_FEW: Final = 4


class Backlog:
    """Waiting and deferred messages, in the order in which they are to be delivered.

    A channel is a `Backlog` with consumers; a topic has one for messages published before its first channel
    or while it is paused. Of all messages below ``end``, those in ``finished`` are done with. All others are
    pending, whether they wait, are deferred or are in flight.
    """

    __slots__ = (
        "attempts",
        "deferred",
        "depth",
        "dropped_count",
        "end",
        "expired_count",
        "finished",
        "journal",
        "limit",
        "queue",
        "suspended",
        "weight",
    )

    def __init__(self, limit: int = UNLIMITED) -> None:
        """*limit* bounds what waits; messages beyond it are dropped, as an ephemeral channel does."""
        self.queue: deque[PendingRange | PendingList] = deque()
        self.depth = 0
        self.limit = limit
        self.deferred = Deferred()
        # Deliveries of each message that came back; a message that never did has no entry.
        self.attempts: dict[int, int] = {}
        self.finished = RangeSet()
        self.end = 0
        # Facts that a checkpoint cannot see in ``finished``; None for messages that live in memory only.
        self.journal = Journal() if limit >= UNLIMITED else None
        # Messages that were dropped by a policy's bound, and by its time to live.
        self.dropped_count = 0
        self.expired_count = 0
        self.weight = Weight()
        # Pending, but neither waiting nor counted, because another nsqd may deliver it: see `suspension`.
        # Mostly empty.
        self.suspended: Ranges = []

    def begin(self, position: int) -> None:
        """Finish all below *position*, and deliver what follows; called while nothing is pending."""
        self.finished = RangeSet(position)
        self.end = position

    def extend(self, start: int, end: int, due_ns: int = 0, attempts: int = 0) -> None:
        """New messages ``start <= seq < end`` wait at the tail, or from *due_ns* on if that is given.

        *attempts* is how often another nsqd has delivered them.
        """
        if start != self.end:
            # No message here has a number in between: those were left out, or belong to others.
            self.finished.add(self.end, start)
        self.end = end
        if due_ns:
            self.defer(start, end, due_ns)
        elif attempts:
            self.attempts.update(dict.fromkeys(range(start, end), attempts))
            if self.journal is not None:
                self.journal.tried(start, end, attempts)
            self.enqueue_redelivered(start, end)
        else:
            self.enqueue(start, end)

    def enqueue(self, start: int, end: int) -> None:
        """Messages ``start <= seq < end``, which are pending and were not delivered yet, wait at the tail."""
        if self.suspended and within(self.suspended, start, end):
            for low, high in without([(start, end)], self.suspended):
                self.enqueue(low, high)
            return
        depth = self.depth + end - start
        if depth > self.limit:
            kept = min(end, start + max(0, self.room()))
            self.finished.add(kept, end)
            end = kept
            if end <= start:
                return
            depth = self.depth + end - start
        self.depth = depth
        queue = self.queue
        if queue:
            last = queue[-1]
            if isinstance(last, PendingRange) and last.end == start and not last.redelivered:
                last.end = end
                return
        queue.append(PendingRange(start, end, redelivered=False))

    def room(self) -> int:
        return self.limit - self.depth

    def defer(self, start: int, end: int, due_ns: int) -> None:
        """Messages ``start <= seq < end``, which are pending, are deferred until *due_ns*."""
        self.deferred.put(start, end, due_ns)
        if self.journal is not None:
            self.journal.defer(start, end, due_ns)

    def enqueue_redelivered(self, start: int, end: int) -> None:
        """Messages that were delivered before wait again, behind what already waits."""
        if self.suspended and within(self.suspended, start, end):
            for low, high in without([(start, end)], self.suspended):
                self.enqueue_redelivered(low, high)
            return
        if self.depth + end - start > self.limit:
            kept = min(end, start + max(0, self.room()))
            self.forget_attempts(kept, end)
            self.finished.add(kept, end)
            end = kept
            if end <= start:
                return
        queue = self.queue
        last = queue[-1] if queue else None
        if isinstance(last, PendingRange) and last.redelivered and last.end == start:
            last.end = end
        else:
            queue.append(PendingRange(start, end, redelivered=True))
        self.depth += end - start

    def enqueue_scattered(self, seqs: list[int], *, redelivered: bool) -> None:
        """Sorted pending messages wait at the tail; with *redelivered* they were delivered before."""
        if self.suspended:
            left = without(ranges_of(seqs), self.suspended)
            seqs = [seq for start, end in left for seq in range(start, end)]
        if len(seqs) < _FEW or len(seqs) > self.room():
            for start, end in ranges_of(seqs):
                if redelivered:
                    self.enqueue_redelivered(start, end)
                else:
                    self.enqueue(start, end)
        else:
            self.queue.append(together(seqs, redelivered=redelivered))
            self.depth += len(seqs)

    def waiting(self) -> Ranges:
        """The waiting messages, in the order in which they are to be delivered."""
        return ranges_waiting(self.queue)

    def take_out(self, seqs: set[int]) -> set[int]:
        """Take these messages out of the waiting and the deferred ones; returns those that were either."""
        wanted = sorted(seqs)
        taken: set[int] = set()
        kept: deque[PendingRange | PendingList] = deque()
        for span in self.queue:
            if isinstance(span, PendingList):
                remaining = span.remaining()
                taken.update(seq for seq in remaining if seq in seqs)
                remaining = [seq for seq in remaining if seq not in seqs]
                if remaining:
                    kept.append(together(remaining, redelivered=span.redelivered))
                continue
            start = span.start
            for seq in wanted[bisect_left(wanted, span.start) : bisect_left(wanted, span.end)]:
                taken.add(seq)
                if start < seq:
                    kept.append(PendingRange(start, seq, span.redelivered))
                start = seq + 1
            if start == span.start:
                kept.append(span)
            elif start < span.end:
                kept.append(PendingRange(start, span.end, span.redelivered))
        self.queue = kept
        self.depth -= len(taken)
        if len(taken) < len(seqs) and self.deferred:
            # The others may be deferred.
            taken |= self.deferred.take_out(seqs - taken)
        return taken

    def remove_ranges(self, ranges: Ranges) -> None:
        """Take messages in *ranges*, sorted and merged, out of the waiting and the deferred ones."""
        self.remove_waiting(ranges)
        if self.deferred:
            runs = list(self.deferred.runs())
            if any(within(ranges, start, end) for _, start, end in runs):
                self.deferred.clear()
                for due_ns, start, end in runs:
                    for low, high in without([(start, end)], ranges):
                        self.deferred.put(low, high, due_ns)

    def remove_waiting(self, ranges: Ranges) -> None:
        """Take messages in *ranges*, sorted and merged, out of the waiting ones."""
        kept: deque[PendingRange | PendingList] = deque()
        depth = 0
        for span in self.queue:
            if isinstance(span, PendingList):
                left = without(ranges_of(span.remaining()), ranges)
                remaining = [seq for start, end in left for seq in range(start, end)]
                if remaining:
                    kept.append(together(remaining, redelivered=span.redelivered))
                depth += len(remaining)
                continue
            for start, end in without([(span.start, span.end)], ranges):
                kept.append(PendingRange(start, end, span.redelivered))
                depth += end - start
        self.queue = kept
        self.depth = depth

    def release_due(self, now_ns: int) -> int | None:
        """Move deferred messages whose time has come to the tail of the waiting ones.

        Returns the lowest of them, None when there are none. When very many are due at once, some are left
        for the next call.
        """
        if not self.deferred:
            return None
        attempts = self.attempts
        starts, ends = self.deferred.take_due(now_ns)
        # Messages put off one by one are sorted by sequence; those put off together are in that order
        # already.
        single: list[int] = []
        for start, end in zip(starts, ends, strict=True):
            if end - start == 1:
                single.append(start)
            elif end - start <= SHORT:
                single.extend(range(start, end))
            elif attempts:
                self._enqueue_each(range(start, end))
            else:
                self.enqueue(start, end)
        single.sort()
        self._enqueue_each(single)
        return min(starts, default=None)

    def _enqueue_each(self, seqs: Sequence[int]) -> None:
        """Let sorted messages wait at the tail, those that were delivered before behind the others."""
        attempts = self.attempts
        redelivered = [seq for seq in seqs if seq in attempts] if attempts else []
        new = [seq for seq in seqs if seq not in attempts] if redelivered else list(seqs)
        if new:
            self.enqueue_scattered(new, redelivered=False)
        if redelivered:
            self.enqueue_scattered(redelivered, redelivered=True)

    def take_over(self, other: "Backlog") -> None:
        """Owe also what *other* must deliver, behind the messages that already wait."""
        start = max(self.end, other.finished.floor)
        for low, high in other.finished.missing(start, other.end):
            self.finished.add(self.end, low)
            self.end = high
        self.finished.add(self.end, other.end)
        self.end = max(self.end, other.end)
        self.attempts.update(other.attempts)
        if self.journal is not None:
            for seq, count in other.attempts.items():
                self.journal.tried(seq, seq + 1, count)
        for span in other.queue:
            if isinstance(span, PendingList):
                self.enqueue_scattered(span.remaining(), redelivered=span.redelivered)
            elif span.redelivered:
                self.enqueue_redelivered(span.start, span.end)
            else:
                self.enqueue(span.start, span.end)
        for due_ns, low, high in other.deferred.runs():
            self.defer(low, high, due_ns)

    def drop_below(self, seq: int) -> None:
        """Owe nothing below *seq* any more."""
        self.finished.add(0, seq)
        kept: deque[PendingRange | PendingList] = deque()
        for span in self.queue:
            self.depth -= size_of(span.cut_below(seq))
            if len(span):
                kept.append(span)
        self.queue = kept
        self.deferred.drop_below(seq)
        self.attempts = {kept_seq: count for kept_seq, count in self.attempts.items() if kept_seq >= seq}

    def drop_from(self, seq: int) -> None:
        """Owe nothing from *seq* on any more."""
        if seq < self.end:
            self.remove_ranges([(seq, self.end)])
            self.finished.add(seq, self.end)
            self.attempts = {kept_seq: count for kept_seq, count in self.attempts.items() if kept_seq < seq}

    def give_up_first(self, count: int) -> None:
        """Finish the first *count* messages that wait, without delivering them."""
        queue = self.queue
        while count > 0 and queue:
            span = queue[0]
            for start, end in span.cut(count):
                count -= end - start
                self.depth -= end - start
                self.forget_attempts(start, end)
                self.finished.add(start, end)
            if not len(span):
                queue.popleft()

    def give_up_below(self, seq: int) -> Ranges:
        """Take messages below *seq* out of the waiting ones; returns them. They are pending until they are
        finished.
        """
        given_up: Ranges = []
        kept: deque[PendingRange | PendingList] = deque()
        for span in self.queue:
            given_up += span.cut_below(seq)
            if len(span):
                kept.append(span)
        if given_up:
            self.queue = kept
            self.depth -= size_of(given_up)
        return merged(given_up)

    def clear(self) -> None:
        """Owe nothing any more."""
        self.finished.add(0, self.end)
        self.queue.clear()
        self.depth = 0
        self.deferred.clear()
        self.attempts.clear()

    def forget_attempts(self, start: int, end: int) -> None:
        attempts = self.attempts
        if attempts:
            for seq in range(start, end):
                attempts.pop(seq, None)

    def count(self) -> int:
        """How many messages are pending."""
        return self.depth + len(self.deferred)

    def count_below(self, seq: int) -> int:
        """How many waiting messages have a sequence below *seq*."""
        count = 0
        for span in self.queue:
            if isinstance(span, PendingList):
                count += max(0, bisect_left(span.seqs, seq) - span.at)
            elif span.start < seq:
                count += min(span.end, seq) - span.start
        return count

    def pending(self, start: int, end: int) -> Ranges:
        """The messages of ``start <= seq < end`` that are pending, sorted and merged."""
        return self.finished.missing(start, min(end, self.end))

    def count_pending(self, start: int, end: int) -> int:
        """How many messages of ``start <= seq < end`` are pending."""
        return self.finished.count_missing(start, min(end, self.end))

    def lowest(self) -> int | None:
        """The lowest sequence that is pending; None when nothing is."""
        floor = self.finished.floor
        return floor if floor < self.end else None
