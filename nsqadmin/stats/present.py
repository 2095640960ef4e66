"""Formats numbers, durations and failures for a page; PURE."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from nsqclient.wire.node_error import CHANNEL_NOT_FOUND, TOPIC_NOT_FOUND, NodeError

_US, _MS, _S = 1_000, 1_000_000, 1_000_000_000
_DAY_S = 86_400
# A sentence has at most so many names.
MAX_NAMES: Final = 8


def count(number: int) -> str:
    """Write ``1,234,567``."""
    return f"{number:,}"


def counted(number: int) -> str:
    """Write a count that only grows, for narrow places: ``1,234,567``, and billions as such."""
    return count(number) if number < 10**9 else f"{number / 10**9:,.2f} bn"


def plural(number: int, noun: str) -> str:
    """Write ``1 message`` or ``2,000 messages``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def named(names: Iterable[str], most: int = MAX_NAMES) -> str:
    """Write the first *most* names, and how many more there are."""
    found = list(names)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def size(number: float) -> str:
    """Write bytes with about three digits: ``812 B``, ``1.25 GB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(number) < 999.5 or unit == "TB":
            return f"{number:.3g} {unit}" if unit != "TB" else f"{number:,.3g} {unit}"
        number /= 1000
    return ""


def per_second(value: float) -> str:
    """Write a rate: one decimal for small values, whole numbers for large ones."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    if abs(value) < 0.05:
        return "0"
    return f"{value:,.1f}".removesuffix(".0")


def duration(nanoseconds: float, *, whole: bool = False) -> str:
    """Write a span with about three digits: ``3h 12m``, ``4m 05s``, ``12.3 s``, ``94.3 ms``.

    *whole* rounds to whole seconds.
    """
    if whole and nanoseconds < 60 * _S:
        return f"{nanoseconds / _S:.0f} s"
    if nanoseconds >= 60 * _S:
        seconds = round(nanoseconds / _S)
        minutes, seconds = divmod(seconds, 60)
        if minutes < 60:
            return f"{minutes}m {seconds:02d}s"
        hours, minutes = divmod(minutes, 60)
        if hours < 48:
            return f"{hours}h {minutes:02d}m"
        return f"{hours // 24}d {hours % 24}h"
    for unit, name in ((_S, "s"), (_MS, "ms"), (_US, "µs")):
        if nanoseconds >= unit:
            return f"{nanoseconds / unit:.3g} {name}" if nanoseconds < 999.5 * unit else f"{1000:,} {name}"
    return f"{nanoseconds:.0f} ns"


def clock(at_s: float) -> str:
    """Write a time of day in UTC, like all times on the pages: ``14:05:09``."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M:%S")


def moment(at_s: float) -> str:
    """Write a date and a time of day in UTC: ``2026-11-22 14:05:09``."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def stamp(at_s: float) -> str:
    """Write a moment for programs: ``2026-11-22T14:05:09Z``."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def time_text(at_s: float, now_s: float) -> str:
    """Write when something was, in UTC: the time of day, with the date if that is more than a day away."""
    return clock(at_s) if abs(now_s - at_s) < _DAY_S else moment(at_s)


def percentile(quantile: float) -> str:
    """Name a quantile in the usual way: ``99th``, ``99.9th``, ``50th``."""
    text = f"{quantile * 100:.6g}"
    if text.endswith(("11", "12", "13")):
        return text + "th"
    return text + {"1": "st", "2": "nd", "3": "rd"}.get(text[-1], "th")


def failure(error: NodeError, kind: str) -> str:
    """Say in plain words which node failed to do what, and why. *kind* is ``nsqd`` or ``nsqlookupd``."""
    node = f"{kind} {error.address}"
    if error.may_happen:
        return f"{node} did not answer in time ({error.reason}): the outcome is unknown, it may still happen"
    if error.unreachable and error.verb != "GET":
        return f"{node} was not reached ({error.reason}): nothing changed there"
    if error.unreachable:
        return f"{node} does not answer ({error.reason})"
    if error.code == TOPIC_NOT_FOUND:
        return f"{node} does not know this topic"
    if error.code == CHANNEL_NOT_FOUND:
        return f"{node} does not have this channel"
    if error.status == 200:
        return f"{node} gave an {error.reason}"
    if error.verb == "GET":
        return f"{node} answers with an error ({error.code or error.reason})"
    return f"{node} refused: {error.code or error.reason}"
