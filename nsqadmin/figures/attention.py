"""What in the cluster deserves a human's attention, and the sentence that says why; PURE."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from nsqadmin.figures.present import per_second, plural
from nsqadmin.figures.records import ChannelRecord, TopicRecord
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


def of_channel(channel: ChannelRecord, trend: Trend | None) -> list[Concern]:
    """Judge a channel by its total over all nodes."""
    found: list[Concern] = []

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


def of_topic(topic: TopicRecord) -> list[Concern]:
    """Judge a topic by its own queue; its channels are judged one by one."""
    found: list[Concern] = []
    waiting = f"{plural(topic.depth, 'message')} {'waits' if topic.depth == 1 else 'wait'}"
    if topic.paused:
        text = f"paused; {waiting} in the topic" if topic.depth else "paused"
        found.append(Concern(Level.WATCH, "paused", text, topic.topic_name, weight=topic.depth))
    elif topic.depth and not topic.channels:
        text = f"{waiting} in the topic, because it has no channel yet"
        found.append(Concern(Level.WATCH, "no channel", text, topic.topic_name, weight=topic.depth))
    return found


def of_node(address: str, *, silent: str = "", health: str = "OK") -> list[Concern]:
    """Judge an nsqd: *silent* is why it gave no figures, *health* what it says about itself."""
    if silent:
        text = f"nsqd does not answer ({silent}); its figures are missing on all pages"
        return [Concern(Level.TROUBLE, "no answer", text, node=address, weight=float("inf"))]
    if health not in {"", "OK"}:
        text = f"nsqd reports bad health: {health}"
        return [Concern(Level.TROUBLE, "unhealthy", text, node=address, weight=float("inf"))]
    return []


def worst_first(concerns: Iterable[Concern]) -> list[Concern]:
    return sorted(
        concerns,
        key=lambda concern: (-concern.level, -concern.weight, concern.topic, concern.channel, concern.node),
    )


def worst_level(concerns: Iterable[Concern]) -> Level | None:
    return max((concern.level for concern in concerns), default=None)
