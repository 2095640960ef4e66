"""Why a channel is slow, in sentences on which an operator can act; PURE."""

from collections.abc import Sequence
from typing import Final

from nsqadmin.stats.consumers import Consumer
from nsqadmin.stats.present import duration, named, per_second, plural
from nsqadmin.stats.sums import ChannelSum
from nsqadmin.stats.trend import Trend

# With this share of their RDY in flight, consumers count as having no room.
_FULL: Final = 0.9


def why_slow(channel: ChannelSum, consumers: Sequence[Consumer]) -> list[str]:
    """Explain the backlog of a channel with its parts on each node and the *consumers* that are known."""
    if not channel.depth:
        return []
    if channel.paused:
        return ["It is paused."]
    if not any(part.client_count for part in channel.parts) and not consumers:
        return ["No consumers connected."]
    complete = len(consumers) >= channel.client_count
    found = []
    bare = [part for part in channel.parts if part.depth and not part.client_count]
    if bare:
        waiting = sum(part.depth for part in bare)
        names = named([part.node for part in bare])
        found.append(f"No consumers on {names}: {plural(waiting, 'message')} waiting there.")
    silent = [one for one in consumers if one.is_silent]
    if silent:
        silent.sort(key=lambda one: -(one.silent_s or 0.0))
        names = named(
            [f"{one.name} (for {duration((one.silent_s or 0.0) * 1e9, whole=True)})" for one in silent]
        )
        held = sum(one.stats.in_flight_count for one in silent)
        found.append(f"{held:,} in flight, no FIN: {names}.")
    closed = [one for one in consumers if not one.stats.ready_count and not one.stats.in_flight_count]
    if closed and complete:
        who = (
            "None of the consumers takes"
            if len(closed) == len(consumers)
            else f"{named([one.name for one in closed])} take{'s' if len(closed) == 1 else ''}"
        )
        found.append(f"{who} any messages now (RDY 0): backing off after failures, or waiting for a turn.")
    found += _pace(channel.depth, channel.trend, consumers, complete=complete)
    return found


def _pace(depth: int, trend: Trend | None, consumers: Sequence[Consumer], *, complete: bool) -> list[str]:
    if trend is None:
        return []
    found = []
    if trend.timeouts > 0:
        found.append(
            f"Handlers take longer than the message time-out: {per_second(trend.timeouts)} a second return."
        )
    arrives, finishes = per_second(trend.messages), per_second(trend.finished)
    ready = sum(one.stats.ready_count for one in consumers)
    in_flight = sum(one.stats.in_flight_count for one in consumers)
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
