"""Which messages a log has or once had: only these it may report as finished. Pure.

Not every sequence number belongs to a message of the log: some messages were lost in a power cut, and after a
start the numbers go on far above the last one. Such a message must not be reported as finished: another nsqd
may have it, and would drop it.

Numbers of messages that could not be stored count as had. Their publishers were told so, no copy is made of a
write that failed, and the numbers are not used again: no other nsqd loses anything by what is said of them.
"""

from typing import Final

from nsqd.log.ranges import Ranges, merged, within, without

# How many closed ranges are remembered; each life of the node that did not end in good order leaves one.
# Nothing is reported about older messages: another nsqd that still has them delivers them once more.
MAX_REMEMBERED_RANGES: Final = 256


class StoredRanges:
    """Ranges ``first <= seq < end``: closed ones, and the open one, which ends where the log does."""

    __slots__ = ("closed", "first")

    def __init__(self, first: int) -> None:
        # Sorted, and all below `first`, where the open range begins.
        self.closed: Ranges = []
        self.first = first

    def __repr__(self) -> str:
        return f"<StoredRanges {self.closed} and from {self.first} on>"

    def ranges(self, end: int) -> Ranges:
        """All ranges, sorted and merged; *end* is where the log ends."""
        return merged([*self.closed, (self.first, end)])

    def unused(self, start: int, end: int) -> Ranges:
        """The part of ``start <= seq < end`` that no message of the log has or had.

        What is no longer remembered counts as had.
        """
        if len(self.closed) >= MAX_REMEMBERED_RANGES:
            start = max(start, self.closed[0][0])
        return without([(start, end)], self.ranges(max(end, self.first))) if start < end else []

    def go_on_at(self, end: int, first: int) -> None:
        """The log ended at *end*, and goes on with *first*: anything it had between them is lost."""
        if first > end:
            self.closed = self.ranges(end)[-MAX_REMEMBERED_RANGES:]
            self.first = first

    def begin(self, ranges: Ranges, first: int) -> None:
        """Take over *ranges* as far as they lie below *first*; from *first* on everything will be stored."""
        self.closed = within(merged(ranges), 0, first)[-MAX_REMEMBERED_RANGES:]
        self.first = first

    def take_out(self, start: int, end: int) -> None:
        """Remove ``start <= seq < end``, because these messages cannot be read any more."""
        self.closed = [
            part
            for first, stop in self.closed
            for part in ((first, min(stop, start)), (max(first, end), stop))
            if part[0] < part[1]
        ]
        if end > self.first:
            if start > self.first:
                self.closed.append((self.first, start))
            self.first = end
