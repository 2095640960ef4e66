"""Reading a range of a log, or all messages from a time on. Also parses positions from text.

Readers get blocks and gaps, or `CannotRead`. Delivery takes its blocks from the log itself, a few at a time.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, Protocol

from nsqcore.durations import parse_long_duration
from nsqd.log.frames import Block
from nsqd.log.gaps import EVERYTHING, Gap
from nsqd.log.ids import SEQUENCE_MASK, MessageIds


class Readable(Protocol):
    """A log on disk, or one with its newest blocks in memory."""

    def read(self, seq: int, end: int) -> Block | Gap | None:
        """The block that holds *seq*, the gap in which it lies, or None past the end. Raises CannotRead."""

    def seek(self, time_ns: int) -> int:
        """A sequence somewhat before the first message published at *time_ns* or later."""

    def page_start(self, seq: int) -> int:
        """The first sequence that is read together with *seq*; at or before it."""


def scan(
    log: Readable, start: int, end: int = EVERYTHING, *, few: int = EVERYTHING
) -> Iterator[tuple[int, int, Block | Gap]]:
    """Yield the range ``start <= seq < end`` in order and without holes: from, to, block or gap.

    A block may extend beyond these bounds. For a reader that wants only a *few* messages, no more is
    read. Ends where the log does. Raises CannotRead.
    """
    while start < end:
        found = log.read(start, min(end, start + few))
        if found is None:
            return
        stop = min(end, found.next if isinstance(found, Block) else found.end)
        yield start, stop, found
        start = stop


def backwards(log: Readable, start: int, end: int) -> Iterator[tuple[int, int, Block | Gap]]:
    """Like :func:`scan`, but last first. All messages of a read are read before the first is yielded."""
    while start < end:
        low = max(start, min(log.page_start(end - 1), end - 1))
        together = list(scan(log, low, end))
        yield from reversed(together)
        end = low


def seek(log: Readable, time_ns: int, end: int = EVERYTHING) -> int:
    """The first message published at *time_ns* or later, else the end of the readable messages.

    Messages are in publishing order, unless a clock was set back. Raises CannotRead.
    """
    position = log.seek(time_ns)
    for start, stop, found in scan(log, position, end):
        position = stop
        if isinstance(found, Gap) or found.timestamp_ns(stop - 1) < time_ns:
            continue
        return start + bisect_left(range(start, stop), time_ns, key=found.timestamp_ns)
    return position


_SEQUENCE: Final = re.compile(r"[0-9]{1,18}")
_ID: Final = re.compile(r"(?:id:)?([0-9a-f]{16})")
_SECONDS: Final = re.compile(r"@([0-9]{1,11})(?:\.([0-9]{1,9}))?")
_AGO: Final = re.compile(r"-([0-9.].*)")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class PositionKind(Enum):
    """The kind of a position."""

    EARLIEST = "earliest"
    LATEST = "latest"
    SEQUENCE = "sequence"
    TIME = "time"


class BadPosition(ValueError):
    """The text is not a position; the error says so in a sentence."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A position in a log; *number* is a sequence, or a time in ns since 1970."""

    kind: PositionKind
    number: int = 0

    def position(self, log: Readable, first: int, end: int) -> int:
        """The first message at or after this position, in a log that has ``first <= seq < end``.

        A sequence is returned as it is, whether or not it is in the log. Raises CannotRead.
        """
        if self.kind is PositionKind.EARLIEST:
            return first
        if self.kind is PositionKind.LATEST:
            return end
        if self.kind is PositionKind.SEQUENCE:
            return self.number
        return max(first, min(seek(log, self.number, end), end))

    def last(self, log: Readable, first: int, end: int) -> int:
        """The last message at or before this position, for reading backwards. Raises CannotRead."""
        if self.kind is PositionKind.TIME:
            return max(first, min(seek(log, self.number + 1, end), end)) - 1
        return end - 1 if self.kind is PositionKind.LATEST else self.position(log, first, end)


def parse_position(text: str, ids: MessageIds, now_ns: int) -> LogPosition:
    """The position that *text* names; *now_ns* is the time on the wall clock. Raises BadPlace.

    *text* is ``earliest``, ``latest``, a sequence, an id of 16 characters, or a time:
    ``2026-01-31T12:00:00Z``, ``@1769860800``, ``-10m`` or ``-7d``. Sixteen decimal digits are a
    sequence; ``id:`` before them makes them an id.
    """
    if text in {PositionKind.EARLIEST.value, PositionKind.LATEST.value}:
        return LogPosition(PositionKind(text))
    if _SEQUENCE.fullmatch(text):
        if int(text) > SEQUENCE_MASK:
            raise BadPosition(f"{text} is larger than any sequence")
        return LogPosition(PositionKind.SEQUENCE, int(text))
    if match := _ID.fullmatch(text):
        seq = ids.decode(match[1].encode())
        if seq < 0:
            raise BadPosition(f"{match[1]} is the id of a message of another node")
        return LogPosition(PositionKind.SEQUENCE, seq)
    return LogPosition(PositionKind.TIME, parse_time(text, now_ns))


def parse_time(text: str, now_ns: int) -> int:
    """A time in ns since 1970. Raises BadPlace."""
    if match := _SECONDS.fullmatch(text):
        return int(match[1]) * 1_000_000_000 + int((match[2] or "").ljust(9, "0"))
    try:
        if match := _AGO.fullmatch(text):
            return max(0, now_ns - parse_long_duration(match[1]))
        if not _DATE.match(text):
            raise ValueError(text)
        # A plus that was not escaped in a query arrives as a blank.
        when = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return max(0, (when - _EPOCH) // _MICROSECOND * 1000)
    except (ValueError, OverflowError):
        raise BadPosition(
            f"{text[:60]!r} is no sequence, id or time; write earliest, latest, a sequence, an id, "
            "2026-01-31T12:00:00Z, @1769860800, -10m or -7d"
        ) from None
