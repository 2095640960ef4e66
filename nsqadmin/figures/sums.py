"""The whole cluster added up for lists that show all of it: only what they show, as fast as it goes; PURE.

The records of :mod:`nsqadmin.figures.records` are made for one topic at a time and know everything; these are
made of every channel on every node each few seconds.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from nsqadmin.figures import attention
from nsqadmin.figures.attention import Concern, Level
from nsqadmin.figures.trend import Mark, Trend, counts_then, join_channel, topic_trend, total_trend
from nsqcore.cluster.models import TopicStats

# One node's share of a topic: its figures, what to compare them with, and when they were taken.
Share = tuple[TopicStats, Sequence[Mark], int]


@dataclass(slots=True)
class ChannelSum:
    topic_name: str
    channel_name: str
    depth: int = 0
    backend_depth: int = 0
    in_flight_count: int = 0
    deferred_count: int = 0
    client_count: int = 0
    message_count: int = 0
    paused: bool = False
    trend: Trend | None = None
    concerns: Sequence[Concern] = ()

    @property
    def level(self) -> Level | None:
        return attention.worst_level(self.concerns)


@dataclass(slots=True)
class TopicSum:
    """One row of the list of topics; figures include the topic's channels unless named ``own_``."""

    name: str
    is_idle: bool = False
    nodes: int = 0
    own_depth: int = 0
    depth: int = 0
    backend_depth: int = 0
    in_flight: int = 0
    deferred: int = 0
    consumers: int = 0
    message_count: int = 0
    paused: bool = False
    trend: Trend | None = None
    channels: list[ChannelSum] = field(default_factory=list)
    concerns: Sequence[Concern] = ()

    @property
    def memory_depth(self) -> int:
        return self.depth - self.backend_depth

    @property
    def level(self) -> Level | None:
        return attention.worst_level(self.concerns)

    @property
    def marks(self) -> list[Concern]:
        """One concern for each different mark, the worst of its kind."""
        kinds: dict[str, Concern] = {}
        for concern in attention.worst_first(self.concerns):
            kinds.setdefault(concern.mark, concern)
        return list(kinds.values())

    def matches(self, wanted: str) -> bool:
        """Tell whether the topic or one of its channels has *wanted*, in small letters, in its name."""
        return wanted in self.name.lower() or any(
            wanted in channel.channel_name.lower() for channel in self.channels
        )

    def to_json(self) -> dict[str, Any]:
        """Say what the row shows."""
        return {
            "topic_name": self.name,
            "inactive": self.is_idle,
            "state": [concern.mark for concern in self.marks],
            "messages_per_second": self.trend.messages if self.trend else None,
            "depth": self.depth,
            "memory_depth": self.memory_depth,
            "backend_depth": self.backend_depth,
            "in_flight_count": self.in_flight,
            "deferred_count": self.deferred,
            "client_count": self.consumers,
            "message_count": self.message_count,
            "channels": [channel.channel_name for channel in self.channels],
        }


def add_up(name: str, shares: Iterable[Share]) -> TopicSum:
    """Add up one topic over the nodes that have it."""
    topic = TopicSum(name)
    channels: dict[str, ChannelSum] = {}
    for stats, marks, at_ns in shares:
        topic.nodes += 1
        topic.own_depth += stats.depth
        topic.backend_depth += stats.backend_depth
        topic.message_count += stats.message_count
        topic.paused |= stats.paused
        then = counts_then(stats, marks, at_ns)
        counts, span_s = then or ((), 0.0)
        if counts:
            topic.trend = total_trend((topic.trend, topic_trend(stats, counts, span_s)))
        for place, share in enumerate(stats.channels):
            channel = channels.get(share.channel_name)
            if channel is None:
                channel = channels[share.channel_name] = ChannelSum(name, share.channel_name)
            channel.depth += share.depth
            channel.backend_depth += share.backend_depth
            channel.in_flight_count += share.in_flight_count
            channel.deferred_count += share.deferred_count
            channel.client_count += share.client_count
            channel.message_count += share.message_count
            if share.paused:
                channel.paused = True
            if counts:
                channel.trend = join_channel(channel.trend, share, place, counts, span_s)
    topic.channels = [channels[key] for key in sorted(channels)]
    topic.depth = topic.own_depth
    concerns = attention.of_topic(name, topic.own_depth, paused=topic.paused, has_channels=bool(channels))
    for channel in topic.channels:
        topic.depth += channel.depth
        topic.backend_depth += channel.backend_depth
        topic.in_flight += channel.in_flight_count
        topic.deferred += channel.deferred_count
        topic.consumers += channel.client_count
        channel.concerns = attention.of_channel(channel, channel.trend)
        concerns += channel.concerns
    topic.concerns = concerns
    return topic


class ClusterSum:
    """Every topic, with what all of them come to."""

    def __init__(self, topics: dict[str, TopicSum]) -> None:
        self.topics = topics

    @cached_property
    def rows(self) -> list[TopicSum]:
        return sorted(self.topics.values(), key=lambda topic: (topic.name.lower(), topic.name))

    @cached_property
    def concerns(self) -> list[Concern]:
        """Return what is wrong with topics and channels, worst first."""
        return attention.worst_first(concern for topic in self.topics.values() for concern in topic.concerns)

    @cached_property
    def rate(self) -> float | None:
        known = [topic.trend.messages for topic in self.topics.values() if topic.trend is not None]
        return sum(known) if known else None

    @cached_property
    def channel_rate(self) -> float | None:
        """Return how many messages are put into channels each second."""
        known = [
            channel.trend.messages
            for topic in self.topics.values()
            for channel in topic.channels
            if channel.trend is not None
        ]
        return sum(known) if known else None

    @cached_property
    def channel_messages(self) -> int:
        return sum(channel.message_count for topic in self.topics.values() for channel in topic.channels)

    @cached_property
    def depth(self) -> int:
        return sum(topic.depth for topic in self.topics.values())

    @cached_property
    def in_flight(self) -> int:
        return sum(topic.in_flight for topic in self.topics.values())

    @cached_property
    def deferred(self) -> int:
        return sum(topic.deferred for topic in self.topics.values())

    @cached_property
    def consumers(self) -> int:
        return sum(topic.consumers for topic in self.topics.values())

    def changed(self, name: str, topic: TopicSum | None) -> "ClusterSum":
        """Return the cluster with one topic other than before, or gone."""
        topics = dict(self.topics)
        if topic is None:
            topics.pop(name, None)
        else:
            topics[name] = topic
        return ClusterSum(topics)


_SORT_KEYS: Final[dict[str, Callable[[TopicSum], float]]] = {
    "rate": lambda row: row.trend.messages if row.trend else -1.0,
    "depth": lambda row: row.depth,
    "disk": lambda row: row.backend_depth,
    "in_flight": lambda row: row.in_flight,
    "deferred": lambda row: row.deferred,
    "consumers": lambda row: row.consumers,
    "channels": lambda row: len(row.channels),
    "messages": lambda row: row.message_count,
    "state": lambda row: row.level or 0,
}


def sort_topics(rows: Sequence[TopicSum], sort: str, *, descending: bool) -> list[TopicSum]:
    """Sort rows that are in the order of their names by a column; equal rows stay in that order."""
    key = _SORT_KEYS.get(sort)
    if key is None:
        return list(reversed(rows)) if descending else list(rows)
    return sorted(rows, key=key, reverse=descending)
