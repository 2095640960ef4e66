"""How many bytes an owner must deliver, and by how much that exceeds a bound.

The messages are weighed now and then; in between the bytes are estimated from the number of messages.
"""

from typing import Final, Protocol

from nsqd.engine.settings import Settings
from nsqd.log.ranges import RangeSet, size_of_range
from nsqd.log.tail import MessageLog

# All messages are weighed again when their number has changed by one part in so many.
_REWEIGH_SHARE: Final = 32


class Weighed(Protocol):
    """The pending messages, as far as they are weighed; `Backlog` has them."""

    end: int
    finished: RangeSet
    weight: "Weight"

    def count(self) -> int:
        """How many messages."""

    def count_unfinished(self, start: int, end: int) -> int:
        """How many of ``start <= seq < end``."""


class Weight:
    """See the module."""

    __slots__ = ("_bytes", "_count", "_end", "_weighed")

    def __init__(self) -> None:
        self._bytes = self._end = 0
        # How many messages those bytes are, and how many were pending when all were weighed.
        self._count = self._weighed = 0

    def of(self, backlog: Weighed, log: MessageLog) -> int:
        """About how many bytes *backlog* must deliver of *log*."""
        count = backlog.count()
        if not count:
            return 0
        if abs(count - self._weighed) * _REWEIGH_SHARE > self._weighed:
            # From the first message that is pending, so that a long log costs nothing before it.
            self._bytes = log.weigh(backlog.finished.floor, backlog.end, backlog.count_unfinished)
            self._count = self._weighed = count
        elif backlog.end != self._end:
            self._bytes += log.weigh(self._end, backlog.end, size_of_range)
            self._count += backlog.end - self._end
        self._end = backlog.end
        # Messages that left since then are assumed to weigh as much as the rest.
        return self._bytes * count // self._count

    @property
    def mean(self) -> int:
        """Mean bytes of one message, at least 1."""
        return max(1, self._bytes // max(1, self._count))

    def forget(self) -> None:
        """Weigh all messages the next time."""
        self._weighed = 0


def excess(backlog: Weighed, settings: Settings, log: MessageLog, count: int = 0, size: int = 0) -> int:
    """How many messages are beyond the bound once *count* more of *size* bytes have come."""
    beyond = backlog.count() + count - settings.max_depth if settings.max_depth else 0
    if settings.max_bytes:
        bytes_beyond = backlog.weight.of(backlog, log) + size - settings.max_bytes
        if bytes_beyond > 0:
            beyond = max(beyond, -(-bytes_beyond // backlog.weight.mean))
    return max(0, beyond)
