"""Durations in the format of the daemons, and with days and weeks in that of people."""

import re
from typing import Final

from nsqclient.wire.durations import HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND, Duration, parse_duration

_DAYS: Final = re.compile(r"([0-9]{1,6})(d|w)(.*)")
_HOURS_IN: Final = {"d": 24, "w": 7 * 24}


def parse_long_duration(text: str) -> Duration:
    """Return *text* in nanoseconds; days and weeks may come first: ``7d``, ``1w2d3h``. Raises ValueError."""
    rest, days_ns = text, 0
    while (days := _DAYS.fullmatch(rest)) is not None:
        days_ns += int(days[1]) * _HOURS_IN[days[2]] * HOUR
        rest = days[3]
    return days_ns + (parse_duration(rest) if rest or not days_ns else 0)


def format_duration(span: Duration) -> str:
    """Write *span* the shortest way: ``1h0m0s``, ``1.5s``, ``250ms``, ``0s``."""
    if span < 0:
        return "-" + format_duration(-span)
    if span == 0:
        return "0s"
    if span < MICROSECOND:
        return f"{span}ns"
    if span < MILLISECOND:
        return _decimal(span, MICROSECOND) + "µs"
    if span < SECOND:
        return _decimal(span, MILLISECOND) + "ms"
    minutes, below_minute = divmod(span, MINUTE)
    seconds = _decimal(below_minute, SECOND) + "s"
    if not minutes:
        return seconds
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}" if hours else f"{minutes}m{seconds}"


def _decimal(span: int, unit: int) -> str:
    whole, below = divmod(span, unit)
    if not below:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}." + f"{below:0{digits}d}".rstrip("0")
