"""Durations as NSQ writes them (``1h30m``, ``250ms``), held as integer nanoseconds."""

import json
import re
from datetime import timedelta
from typing import Final, TypeAlias

Duration: TypeAlias = int
"""A span of time in nanoseconds."""

NANOSECOND: Final = 1
MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE

# The largest 64-bit number of nanoseconds, about 292 years; other NSQ programs can read it.
MAX_DURATION: Final = 2**63 - 1

_UNITS: Final = {
    "ns": NANOSECOND,
    "us": MICROSECOND,
    "µs": MICROSECOND,  # U+00B5 micro sign
    "μs": MICROSECOND,  # U+03BC Greek mu, which some keyboards produce
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}

# A number, its fraction if any (either side of the point may be missing), then all up to the next number.
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")


def parse_duration(text: str) -> Duration:
    """Return *text* in nanoseconds; raises ValueError with the sentence that NSQ prints."""
    invalid = f"time: invalid duration {_quoted(text)}"
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in {"-", "+"} else text
    if rest == "0":
        return 0
    if not rest:
        raise ValueError(invalid)
    total = 0
    at = 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None or not (part[1] or part[2]):
            raise ValueError(invalid)
        if not part[3]:
            raise ValueError(f"time: missing unit in duration {_quoted(text)}")
        unit = _UNITS.get(part[3])
        if unit is None:
            raise ValueError(f"time: unknown unit {_quoted(part[3])} in duration {_quoted(text)}")
        fraction = part[2] or ""
        total += int(part[1] or "0") * unit + int(fraction or "0") * unit // 10 ** len(fraction)
        if total > MAX_DURATION:
            raise ValueError(invalid)
        at = part.end()
    return -total if negative else total


def meant_duration(text: str) -> str:
    """A hint for an error: ``; write 5s (or 5ms, 5m, 5h)`` for a bare number, otherwise an example."""
    number = text.strip()
    if number.isascii() and number.replace(".", "", 1).isdecimal():
        return f"; write {number}s (or {number}ms, {number}m, {number}h)"
    return "; write a duration such as 250ms, 5s or 1m30s"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def seconds_of(span: float | timedelta) -> float:
    """The seconds of a span that is given as seconds or as a ``timedelta``."""
    if isinstance(span, timedelta):
        return span.total_seconds()
    if isinstance(span, bool) or not isinstance(span, int | float):
        raise TypeError(f"{span!r} is neither a number of seconds nor a timedelta")
    return span
