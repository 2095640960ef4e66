"""Where the appends of a page start, so that one message is read without its neighbours. Pure."""

from array import array
from bisect import bisect_right
from typing import Final

# A page is cached when its messages were read one by one this often, on average.
_OFTEN: Final = 2


class Starts:
    """The start of each append of a page, in order, and where the page ends.

    For messages that were appended one by one, a start takes four bytes.
    """

    __slots__ = ("_base", "_firsts", "_offsets", "end", "first", "next", "reads")

    def __init__(self, first: int, base: int) -> None:
        """The page begins with the sequence *first*, at the offset *base*."""
        self.end = base
        # How often messages were read one by one, and the sequence behind the last of these.
        self.reads = 0
        self.next = -1
        self.first = first
        self._base = base
        # Distances from the base, one for each append.
        self._offsets = array("I")
        # The first sequence of each append; None while each has one message and follows the one before.
        self._firsts: array[int] | None = None

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def size(self) -> int:
        """Bytes of memory, roughly."""
        return len(self._offsets) * (4 if self._firsts is None else 12)

    def add(self, first: int, end: int) -> None:
        """Add an append of messages from *first* on; it reaches from the end of the last one to *end*."""
        offsets, firsts = self._offsets, self._firsts
        if firsts is not None:
            firsts.append(first)
        elif first != self.first + len(offsets):
            self._firsts = array("Q", range(self.first, self.first + len(offsets)))
            self._firsts.append(first)
        offsets.append(self.end - self._base)
        self.end = end

    def worth_the_page(self, end: int) -> bool:
        """Whether so many messages were read one by one that the page, up to *end*, is worth keeping."""
        return self.reads > _OFTEN * (end - self.first)

    def one_each(self, end: int) -> bool:
        """Whether each append of the page, which ends with the sequence *end*, has one message."""
        return self._firsts is None and len(self._offsets) == end - self.first

    def place(self, seq: int) -> int:
        """The number of the append in which *seq* lies, if it lies in one."""
        if self._firsts is None:
            return max(0, min(seq - self.first, len(self._offsets) - 1))
        return max(0, bisect_right(self._firsts, seq) - 1)

    def offset(self, place: int) -> int:
        """Where the append with this number starts; for the number behind the last, where the page ends."""
        return self._base + self._offsets[place] if place < len(self._offsets) else self.end
