"""The cluster at a glance: verdict, extremes, nodes by zone."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import nlargest
from typing import Final

from nsqadmin.collecting.members import Member
from nsqadmin.stats.activity import LastConsumers
from nsqadmin.stats.cluster_sum import ClusterSum
from nsqadmin.stats.incidents import incidents
from nsqadmin.stats.missing import MissingNode
from nsqadmin.stats.present import clock, duration, per_second, plural
from nsqadmin.stats.problems import Level, Problem
from nsqadmin.stats.sums import ChannelSum

_MAX_CARDS: Final = 5
# A card as text names at most so many channels.
_MAX_PARTS: Final = 20
_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The line that says how the cluster is: *level* 0 is healthy, 1 is warning, 2 is problem."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Top:
    """A short list of the channels with the highest values of one metric, each with its value in words."""

    title: str
    rows: tuple[tuple[ChannelSum, str], ...]


@dataclass(frozen=True, slots=True)
class NodeTile:
    """A node as shown among the others."""

    address: str
    hostname: str
    level: int
    words: str
    depth: int | None


def verdict(
    problems: Sequence[Problem], waiting: int, now_s: float, oldest_ns: int = 0, away: int = 0
) -> Verdict:
    """Say in one line how the cluster is; problems of one cause count once, as their cards.

    *away* is the backlog on unreachable nodes.
    """
    cards = incidents(problems)
    serious = [one for one in cards if one.level is Level.PROBLEM]
    mild = [one for one in cards if one.level is not Level.PROBLEM]
    messages = f"{plural(waiting, 'message')} waiting" if waiting or away else "No backlog"
    if waiting and oldest_ns > 0:
        messages += f", the oldest in a channel for {duration(max(0.0, now_s * 1e9 - oldest_ns), whole=True)}"
    if away:
        messages += f", {away:,} more on nodes that do not answer"
    if not problems:
        return Verdict(0, f"All good. {messages}")
    since_s = min((one.since_s for one in serious or mild if one.since_s), default=now_s)
    counts = [plural(len(some), word) for some, word in ((serious, "problem"), (mild, "warning")) if some]
    return Verdict(2 if serious else 1, f"{', '.join(counts)} since {_since(since_s, now_s)}. {messages}")


def incident(
    problems: Sequence[Problem], waiting: int, now_s: float, oldest_ns: int = 0, away: int = 0
) -> str:
    """Write the problems as text that can be pasted into a message."""
    at = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    lines = [f"{verdict(problems, waiting, now_s, oldest_ns, away).text} (as of {at})"]
    for card in incidents(problems):
        since = f", since {_since(card.since_s, now_s)}" if card.since_s else ""
        lines.append(
            f"- {card.title}{since}. {card.impact}{_left(card.only.consumers if card.only else None)}"
        )
        parts = card.parts if card.only is None else []
        lines += [
            f"  - {part.name}: {plural(part.messages, 'message')}{_left(part.consumers)}"
            for part in parts[:_MAX_PARTS]
        ]
        if len(parts) > _MAX_PARTS:
            lines.append(f"  - and {len(parts) - _MAX_PARTS} more")
    return "\n".join(lines) + "\n"


def _left(last: LastConsumers | None) -> str:
    return f" (last seen with consumers at {clock(last.at_s)}: {last.names})" if last else ""


def _since(at_s: float, now_s: float) -> str:
    pattern = "%H:%M" if now_s - at_s < _DAY_S else "%d %B %H:%M"
    return datetime.fromtimestamp(at_s, UTC).strftime(pattern)


def tops(total: ClusterSum) -> list[Top]:
    """Return the deepest channels and those that grow fastest; the cost grows with all channels."""
    channels = [one for topic in total.topics.values() for one in topic.channels if one.depth]
    deepest = nlargest(_MAX_CARDS, channels, key=lambda one: one.depth)
    growing = nlargest(
        _MAX_CARDS,
        (one for one in channels if one.trend is not None and one.trend.depth > 1.0),
        key=lambda one: one.trend.depth if one.trend is not None else 0.0,
    )
    found = [
        Top("Deepest", tuple((one, f"{one.depth:,}") for one in deepest)),
        Top(
            "Growing fastest",
            tuple((one, f"+{per_second(one.trend.depth)} / s") for one in growing if one.trend is not None),
        ),
    ]
    return [top for top in found if top.rows]


def by_zone(rows: Sequence[Member], missing: Sequence[MissingNode]) -> list[tuple[str, list[NodeTile]]]:
    """Return the nodes of each zone, the worst first; the zone of those that are down is not known."""
    zones: dict[str, list[NodeTile]] = {}
    if missing:
        zones[""] = [NodeTile(one.address, one.hostname, 2, "down", one.messages) for one in missing]
    for row in sorted(rows, key=lambda row: (-(row.level or 0), row.producer.hostname, row.address)):
        words = ", ".join(row.states)
        depth = row.load.depth if row.load is not None else None
        tile = NodeTile(row.address, row.producer.hostname, int(row.level or 0), words, depth)
        zones.setdefault(" ".join(reversed(row.zone)), []).append(tile)
    return sorted(zones.items())
