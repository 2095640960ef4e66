"""Why a channel is slow, in sentences on which an operator can act; PURE."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nsqadmin.stats.present import duration, named, per_second, plural
from nsqadmin.stats.problems import ShareState
from nsqadmin.stats.trend import Trend

# A consumer with messages in flight that finishes none for this long is named.
SILENT_S: Final = 15.0
# With this share of their RDY in flight, consumers count as having no room.
_FULL: Final = 0.9


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """The state of one consumer. ``silent_s`` and ``rate`` are None if they are not known."""

    name: str
    node: str
    in_flight: int
    ready: int
    silent_s: float | None
    rate: float | None


def why_slow(
    depth: int,
    trend: Trend | None,
    shares: Sequence[ShareState],
    consumers: Sequence[ConsumerState],
    *,
    paused: bool,
    complete: bool,
) -> list[str]:
    """Explain the backlog; *complete* is true if all consumers are known."""
    if not depth:
        return []
    if paused:
        return ["It is paused."]
    if not any(share.consumers for share in shares) and not consumers:
        return ["No consumers connected."]
    found = []
    bare = [share for share in shares if share.depth and not share.consumers]
    if bare:
        waiting = sum(share.depth for share in bare)
        names = named([share.node for share in bare])
        found.append(f"No consumers on {names}: {plural(waiting, 'message')} waiting there.")
    silent = [
        one for one in consumers if one.in_flight and one.silent_s is not None and one.silent_s >= SILENT_S
    ]
    if silent:
        silent.sort(key=lambda one: -(one.silent_s or 0.0))
        names = named(
            [f"{one.name} (for {duration((one.silent_s or 0.0) * 1e9, whole=True)})" for one in silent]
        )
        held = sum(one.in_flight for one in silent)
        found.append(f"{held:,} in flight, no FIN: {names}.")
    closed = [one for one in consumers if not one.ready and not one.in_flight]
    if closed and complete:
        who = (
            "None of the consumers takes"
            if len(closed) == len(consumers)
            else f"{named([one.name for one in closed])} take{'s' if len(closed) == 1 else ''}"
        )
        found.append(f"{who} any messages now (RDY 0): backing off after failures, or waiting for a turn.")
    found += _pace(depth, trend, consumers, complete=complete)
    return found


def _pace(
    depth: int, trend: Trend | None, consumers: Sequence[ConsumerState], *, complete: bool
) -> list[str]:
    if trend is None:
        return []
    found = []
    if trend.timeouts > 0:
        found.append(
            f"Handlers take longer than the message time-out: {per_second(trend.timeouts)} a second return."
        )
    arrives, finishes = per_second(trend.messages), per_second(trend.finished)
    ready = sum(one.ready for one in consumers)
    in_flight = sum(one.in_flight for one in consumers)
    full = complete and ready > 0 and in_flight >= _FULL * ready
    room = "and all in-flight slots are full (RDY)" if full else ""
    if trend.finished and trend.messages > trend.finished * 1.05:
        factor = f"{trend.messages / trend.finished:.1f}"
        text = f"{arrives} arrive and {finishes} are finished a second: too slow by a factor of {factor}"
        found.append(f"{text} {room}".rstrip() + ".")
    elif trend.finished > trend.messages * 1.05:
        left = duration(depth / (trend.finished - trend.messages) * 1e9, whole=True)
        found.append(
            f"It catches up: {finishes} are finished and {arrives} arrive a second; empty in about {left}."
        )
    elif not trend.finished:
        if in_flight:
            found.append(f"Consumers finish nothing {room}".rstrip() + ".")
    elif full:
        found.append("Consumers keep pace, but all in-flight slots are full (RDY).")
    return found
