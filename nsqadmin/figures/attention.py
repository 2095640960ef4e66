"""What in the cluster deserves a human's attention, and the sentence that says why; PURE."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from nsqadmin.figures.missing import Missing
from nsqadmin.figures.present import duration, per_second, plural
from nsqadmin.figures.trend import Trend

# Below this a growing queue is a batch on its way, not a trend.
_GROWTH_DEPTH: Final = 100
# Growth slower than this share of what arrives is noise between two looks.
_GROWTH_SHARE: Final = 0.05
# Consumers get this long before "none finished" means that they are stuck.
_STUCK_S: Final = 5.0


class Level(IntEnum):
    """How urgent; larger is worse."""

    WATCH = 1
    TROUBLE = 2


@dataclass(frozen=True, slots=True)
class Concern:
    """One thing to look at: ``mark`` is a word or two for a badge, ``text`` the whole sentence.

    ``weight`` orders concerns of one level, usually by the number of messages.
    """

    level: Level
    mark: str
    text: str
    topic: str = ""
    channel: str = ""
    node: str = ""
    weight: float = 0.0

    def to_json(self) -> dict[str, str]:
        place = {"topic": self.topic, "channel": self.channel, "node": self.node}
        return {"level": self.level.name.lower(), "state": self.mark, "text": self.text} | {
            key: name for key, name in place.items() if name
        }


class Queue(Protocol):
    """The figures of a channel that it is judged by."""

    topic_name: str
    channel_name: str
    depth: int
    client_count: int
    paused: bool


def of_channel(channel: Queue, trend: Trend | None) -> list[Concern]:
    """Judge a channel by its total over all nodes."""
    found: list[Concern] = []
    # Most channels of a large cluster have nothing to be judged for.
    if not channel.depth and not channel.paused and (trend is None or trend.timeouts <= 0):
        return found

    def note(level: Level, mark: str, text: str) -> None:
        found.append(
            Concern(level, mark, text, channel.topic_name, channel.channel_name, weight=channel.depth)
        )

    waiting = f"{plural(channel.depth, 'message')} {'waits' if channel.depth == 1 else 'wait'}"
    grows = trend is not None and trend.depth > max(1.0, trend.messages * _GROWTH_SHARE)
    growing = f", {per_second(trend.depth)} more each second" if trend is not None and grows else ""
    if channel.paused:
        note(Level.WATCH, "paused", f"paused; {waiting}{growing}" if channel.depth else "paused")
    elif channel.depth and not channel.client_count:
        note(Level.TROUBLE, "no consumers", f"{waiting} and nobody consumes{growing}")
    elif channel.depth and trend is not None and trend.span_s >= _STUCK_S and not trend.finished:
        note(
            Level.TROUBLE,
            "stuck",
            f"{waiting} and {plural(channel.client_count, 'consumer')} finished none for"
            f" {trend.span_s:.0f} s{growing}",
        )
    elif trend is not None and grows and channel.depth >= _GROWTH_DEPTH:
        note(
            Level.TROUBLE,
            "growing",
            f"{waiting}{growing}: {plural(channel.client_count, 'consumer')} finish"
            f"{'es' if channel.client_count == 1 else ''} {per_second(trend.finished)}"
            f" of {per_second(trend.messages)} a second",
        )
    if trend is not None and trend.timeouts > 0:
        note(
            Level.WATCH,
            "timing out",
            f"consumers let {per_second(trend.timeouts)} messages a second time out",
        )
    return found


def of_topic(name: str, own_depth: int, *, paused: bool, has_channels: bool) -> list[Concern]:
    """Judge a topic by its own queue; its channels are judged one by one."""
    if not paused and (not own_depth or has_channels):
        return []
    waiting = f"{plural(own_depth, 'message')} {'waits' if own_depth == 1 else 'wait'}"
    if paused:
        text = f"paused; {waiting} in the topic" if own_depth else "paused"
        return [Concern(Level.WATCH, "paused", text, name, weight=own_depth)]
    text = f"{waiting} in the topic, because it has no channel yet"
    return [Concern(Level.WATCH, "no channel", text, name, weight=own_depth)]


def of_node(
    address: str,
    *,
    silent: str = "",
    held: int = 0,
    health: str = "OK",
    remaining: int | None = None,
    listed: bool = True,
) -> list[Concern]:
    """Judge an nsqd.

    *silent* is why it gives no figures, *held* what it had not delivered when it last gave some, *health*
    what it says about itself, *remaining* what it still owes while it drains, *listed* whether consumers
    find it.
    """
    found: list[Concern] = []

    def note(level: Level, mark: str, text: str) -> None:
        found.append(Concern(level, mark, text, node=address, weight=float("inf")))

    if silent:
        last = f"; it held {plural(held, 'message')} when it last did" if held else ""
        note(Level.TROUBLE, "no answer", f"nsqd does not answer ({silent}){last}; totals are without it")
    elif health not in {"", "OK"}:
        note(Level.TROUBLE, "unhealthy", f"nsqd reports bad health: {health}")
    if remaining is not None and not silent:
        text = f"nsqd is draining: it takes no messages, and {plural(remaining, 'message')} remain"
        note(Level.WATCH, "draining", text + ("s" if remaining == 1 else ""))
    if not listed:
        text = "nsqd answers, but no nsqlookupd lists it: consumers do not find it"
        note(Level.TROUBLE, "not listed", text)
    return found


def of_missing(node: Missing, now_s: float) -> Concern:
    """Judge an nsqd that left."""
    ago = duration(max(0.0, now_s - node.left_s) * 1e9, whole=True)
    if node.seen_s is None:
        text = f"nsqd left {ago} ago; what it held is not known"
    elif node.messages:
        text = (
            f"nsqd left {ago} ago with {plural(node.messages, 'message')}"
            f" in {plural(node.topics, 'topic')} that nobody can read until it is back"
        )
    else:
        text = f"nsqd left {ago} ago; it held no messages"
    level = Level.WATCH if node.seen_s is not None and not node.messages else Level.TROUBLE
    weight = float("inf") if level is Level.TROUBLE else 0.0
    return Concern(level, "left", text, node=node.address, weight=weight)


def worst_first(concerns: Iterable[Concern]) -> list[Concern]:
    return sorted(
        concerns,
        key=lambda concern: (-concern.level, -concern.weight, concern.topic, concern.channel, concern.node),
    )


def worst_level(concerns: Iterable[Concern]) -> Level | None:
    return max((concern.level for concern in concerns), default=None)
