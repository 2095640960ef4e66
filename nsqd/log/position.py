"""Places in a log as people write them: a sequence, an id, a time, the earliest or the latest. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final

from nsqclient.wire.durations import parse_duration
from nsqd.log.cursor import Cursor, Readable
from nsqd.log.ids import SEQUENCE_MASK, MessageIds

_SEQUENCE: Final = re.compile(r"[0-9]{1,18}")
_ID: Final = re.compile(r"(?:id:)?([0-9a-f]{16})")
_SECONDS: Final = re.compile(r"@([0-9]{1,11})(?:\.([0-9]{1,9}))?")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Where(Enum):
    """How a place is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    SEQUENCE = "sequence"
    TIME = "time"


class BadPosition(ValueError):
    """The text does not name a place; the error says so in a sentence."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A place in a log; *number* is a sequence, or a time in ns since 1970."""

    where: Where
    number: int = 0

    def position(self, log: Readable, first: int, end: int) -> int:
        """The first message at this place or behind it, in a log that has ``first <= seq < end``.

        A sequence is returned as it is, whether or not it is in the log. Raises CannotRead.
        """
        if self.where is Where.EARLIEST:
            return first
        if self.where is Where.LATEST:
            return end
        if self.where is Where.SEQUENCE:
            return self.number
        return max(first, min(Cursor(log).seek(self.number, end), end))

    def last(self, log: Readable, first: int, end: int) -> int:
        """The last message at this place or before it, for reading backwards. Raises CannotRead."""
        if self.where is Where.TIME:
            return max(first, min(Cursor(log).seek(self.number + 1, end), end)) - 1
        return end - 1 if self.where is Where.LATEST else self.position(log, first, end)


def parse_position(text: str, ids: MessageIds, now_ns: int) -> LogPosition:
    """The place that *text* names; *now_ns* is the time on the wall clock. Raises BadPlace.

    *text* is ``earliest``, ``latest``, a sequence, an id of 16 characters, or a time:
    ``2026-01-31T12:00:00Z``, ``@1769860800`` or ``-10m``. Sixteen decimal digits are a sequence; ``id:``
    before them makes them an id.
    """
    if text in {Where.EARLIEST.value, Where.LATEST.value}:
        return LogPosition(Where(text))
    if _SEQUENCE.fullmatch(text):
        if int(text) > SEQUENCE_MASK:
            raise BadPosition(f"{text} is larger than any sequence")
        return LogPosition(Where.SEQUENCE, int(text))
    if match := _ID.fullmatch(text):
        seq = ids.decode(match[1].encode())
        if seq < 0:
            raise BadPosition(f"{match[1]} is the id of a message of another node")
        return LogPosition(Where.SEQUENCE, seq)
    return LogPosition(Where.TIME, parse_time(text, now_ns))


def parse_time(text: str, now_ns: int) -> int:
    """A time in ns since 1970. Raises BadPlace."""
    if match := _SECONDS.fullmatch(text):
        return int(match[1]) * 1_000_000_000 + int((match[2] or "").ljust(9, "0"))
    try:
        if text.startswith("-"):
            return max(0, now_ns + parse_duration(text))
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
            "2026-01-31T12:00:00Z, @1769860800 or -10m"
        ) from None
