"""Reading a log from any position: a whole range, one message, or from a time on.

All readers of a log use a cursor and get one of three things: a block, a gap, or `CannotRead`. Only delivery
takes its blocks from the log itself, a few at a time.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Protocol

from nsqd.log.frames import Block
from nsqd.log.gaps import EVERYTHING, Gap


class Readable(Protocol):
    """A log on disk, or one with its newest blocks in memory."""

    def read(self, seq: int, end: int) -> Block | Gap | None:
        """The block that holds *seq*, the gap in which it lies, or None past the end. Raises CannotRead."""

    def seek(self, time_ns: int) -> int:
        """A sequence somewhat before the first message published at *time_ns* or later."""

    def page_start(self, seq: int) -> int:
        """The first sequence that is read together with *seq*; at or before it."""


class Cursor:
    """See the module."""

    def __init__(self, log: Readable) -> None:
        self._log = log

    def scan(
        self, start: int, end: int = EVERYTHING, *, few: int = EVERYTHING
    ) -> Iterator[tuple[int, int, Block | Gap]]:
        """Yield what there is of ``start <= seq < end``, in order and without a hole: from, to, block or gap.

        A block may extend beyond these bounds. For a reader that wants only a *few* messages, no more is
        read. Ends where the log does. Raises CannotRead.
        """
        while start < end:
            found = self._log.read(start, min(end, start + few))
            if found is None:
                return
            stop = min(end, found.next if isinstance(found, Block) else found.end)
            yield start, stop, found
            start = stop

    def backwards(self, start: int, end: int) -> Iterator[tuple[int, int, Block | Gap]]:
        """Like :meth:`scan`, but last first; what is read together is read before any of it is yielded."""
        while start < end:
            low = max(start, min(self._log.page_start(end - 1), end - 1))
            together = list(self.scan(low, end))
            yield from reversed(together)
            end = low

    def at(self, seq: int) -> Block | Gap | None:
        """The block that holds one message, the gap in which it lies, or None past the end.

        Reads no more than one message needs. Raises CannotRead.
        """
        return self._log.read(seq, seq + 1)

    def seek(self, time_ns: int, end: int = EVERYTHING) -> int:
        """The first message published at *time_ns* or later, or where what can be read ends.

        Messages lie in the order of their publishing, unless a clock was set back. Raises CannotRead.
        """
        position = self._log.seek(time_ns)
        for start, stop, found in self.scan(position, end):
            position = stop
            if isinstance(found, Gap) or found.timestamp_ns(stop - 1) < time_ns:
                continue
            return start + bisect_left(range(start, stop), time_ns, key=found.timestamp_ns)
        return position
