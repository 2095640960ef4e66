"""Which messages a log has, or once had: those it may speak of. Pure.

A sequence number alone says little. Of what was numbered some was never stored, some was lost in a power cut,
and after a start the numbers go on far above the last. Nobody may say of such a message that it is finished:
another nsqd may have it, and would drop it.
"""

from typing import Final

from nsqd.log.ranges import Ranges, merged, within

# So many closed ranges are remembered; each life that did not end in good order leaves one. Of what is older
# nothing is said any more: another nsqd that still has it gives it out once more.
MOST: Final = 256


class HadRanges:
    """Ranges ``first <= seq < end``: closed ones, and the open one, which ends where the log does."""

    __slots__ = ("closed", "first")

    def __init__(self, first: int) -> None:
        # Sorted, and all below `first`, from which on everything is stored that the log goes on with.
        self.closed: Ranges = []
        self.first = first

    def __repr__(self) -> str:
        return f"<HadRanges {self.closed} and from {self.first} on>"

    def ranges(self, end: int) -> Ranges:
        """All of it, sorted and merged; *end* is where the log ends."""
        return merged([*self.closed, (self.first, end)])

    def go_on_at(self, end: int, first: int) -> None:
        """The log ended at *end*, and goes on with *first*: no message has a number between them."""
        if first > end:
            self.closed = self.ranges(end)[-MOST:]
            self.first = first

    def begin(self, ranges: Ranges, first: int) -> None:
        """Have these, which lie below *first*, from which on everything will be stored."""
        self.closed = within(merged(ranges), 0, first)[-MOST:]
        self.first = first

    def take_out(self, start: int, end: int) -> None:
        """What was stored in ``start <= seq < end`` cannot be read any more: nothing is said of it."""
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
