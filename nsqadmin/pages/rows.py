"""One object per table row: its figures, how fast they move and what is wrong with them; PURE."""

from collections.abc import Callable
from functools import cached_property
from typing import Final, Self

from nsqadmin.collecting.views import NodeView
from nsqadmin.figures import attention
from nsqadmin.figures.attention import Concern, Level
from nsqadmin.figures.records import ALL_NODES, ChannelRecord, ClientRecord, TopicRecord
from nsqadmin.figures.trend import Trend, TrendBook


class ChannelRow:
    """A channel: its total, or what one node holds of it."""

    def __init__(self, record: ChannelRecord, trends: TrendBook) -> None:
        self.record = record
        self.name = record.channel_name
        self.trend = trends.of(record)
        self._trends = trends
        # A node's share may look bad while the channel is well, so only totals are judged.
        self.concerns = attention.of_channel(record, self.trend) if record.node == ALL_NODES else []

    @cached_property
    def nodes(self) -> list["ChannelRow"]:
        # Made when a page shows them: the index has a thousand channels and shows none of their nodes.
        return [ChannelRow(node, self._trends) for node in self.record.nodes]

    @property
    def level(self) -> Level | None:
        return attention.worst_level(self.concerns)

    @property
    def delivery(self) -> tuple[float, float, float] | None:
        """Shares of messages delivered within the zone, within the region, and beyond; None if unknown."""
        total = self.record.delivery_msg_count
        if not total:
            return None
        zone, region = self.record.zone_local_msg_count, self.record.region_local_msg_count
        return 100 * zone / total, 100 * region / total, 100 * (total - zone - region) / total


class TopicRow:
    """A topic: its total, or what one node holds of it, with its channels."""

    def __init__(self, record: TopicRecord, trends: TrendBook, *, idle: bool = False) -> None:
        self.record = record
        self.name = record.topic_name
        self.is_idle = idle
        self.trend: Trend | None = trends.of(record)
        self.channels = [ChannelRow(channel, trends) for channel in record.channels]
        self._trends = trends
        self.concerns = attention.of_topic(record) if record.node == ALL_NODES else []

    @classmethod
    def idle(cls, name: str) -> Self:
        """Make the row of a topic that is registered, but that no nsqd offers now."""
        return cls(TopicRecord(ALL_NODES, "", name), TrendBook(), idle=True)

    @cached_property
    def nodes(self) -> list["TopicRow"]:
        return [TopicRow(node, self._trends) for node in self.record.nodes]

    @cached_property
    def all_concerns(self) -> list[Concern]:
        return [*self.concerns, *(concern for channel in self.channels for concern in channel.concerns)]

    @property
    def level(self) -> Level | None:
        return attention.worst_level(self.all_concerns)

    @property
    def marks(self) -> list[Concern]:
        """One concern for each different mark, the worst of its kind."""
        kinds: dict[str, Concern] = {}
        for concern in attention.worst_first(self.all_concerns):
            kinds.setdefault(concern.mark, concern)
        return list(kinds.values())

    @property
    def depth(self) -> int:
        """Messages that wait in the topic or in any of its channels."""
        return self.record.depth + sum(channel.record.depth for channel in self.channels)

    @property
    def memory_depth(self) -> int:
        return self.record.memory_depth + sum(channel.record.memory_depth for channel in self.channels)

    @property
    def backend_depth(self) -> int:
        return self.record.backend_depth + sum(channel.record.backend_depth for channel in self.channels)

    @property
    def in_flight(self) -> int:
        return sum(channel.record.in_flight_count for channel in self.channels)

    @property
    def deferred(self) -> int:
        return sum(channel.record.deferred_count for channel in self.channels)

    @property
    def consumers(self) -> int:
        return self.record.client_count

    def matches(self, wanted: str) -> bool:
        """Tell whether the topic or one of its channels has *wanted* in its name."""
        wanted = wanted.lower()
        return wanted in self.name.lower() or any(wanted in channel.name.lower() for channel in self.channels)


def concerns_of(view: NodeView) -> list[Concern]:
    """Judge an nsqd by how it answered."""
    return attention.of_node(
        view.producer.http_address,
        silent=view.error.reason if view.error else "",
        health=view.stats.health if view.stats else "",
    )


class NodeRow:
    """An nsqd, with what it holds when it answered."""

    def __init__(self, view: NodeView, trends: TrendBook) -> None:
        self.producer = view.producer
        self.address = view.producer.http_address
        self.out_of_date = view.out_of_date
        self.answered = view.stats is not None
        self.error = view.error
        self.start_time = view.stats.start_time if view.stats else 0
        self.health = view.stats.health if view.stats else ""
        self.topics = [TopicRow(topic, trends) for topic in view.topics]
        self.tombstoned = {
            registration.topic for registration in view.producer.topics if registration.tombstoned
        }
        self.concerns = concerns_of(view)

    @property
    def topic_names(self) -> list[str]:
        """Topics as listed and as held, which differ for a moment after a change."""
        listed = {registration.topic for registration in self.producer.topics}
        return sorted(listed | {topic.name for topic in self.topics})

    @property
    def depth(self) -> int:
        return sum(topic.depth for topic in self.topics)

    @property
    def in_flight(self) -> int:
        return sum(topic.in_flight for topic in self.topics)

    @property
    def deferred(self) -> int:
        return sum(topic.deferred for topic in self.topics)

    @property
    def consumers(self) -> int:
        return sum(topic.consumers for topic in self.topics)

    @property
    def message_count(self) -> int:
        return sum(topic.record.message_count for topic in self.topics)

    @property
    def rate(self) -> float | None:
        known = [topic.trend.messages for topic in self.topics if topic.trend is not None]
        return sum(known) if known else None

    @property
    def clients(self) -> list[tuple[ChannelRecord, ClientRecord]]:
        return [
            (channel.record, client)
            for topic in self.topics
            for channel in topic.channels
            for client in channel.record.clients
        ]


_SORT_KEYS: Final[dict[str, Callable[[TopicRow], float]]] = {
    "rate": lambda row: row.trend.messages if row.trend else -1.0,
    "depth": lambda row: row.depth,
    "disk": lambda row: row.backend_depth,
    "in_flight": lambda row: row.in_flight,
    "deferred": lambda row: row.deferred,
    "consumers": lambda row: row.consumers,
    "channels": lambda row: len(row.channels),
    "messages": lambda row: row.record.message_count,
    "state": lambda row: row.level or 0,
}


def sort_topics(rows: list[TopicRow], sort: str, *, descending: bool) -> list[TopicRow]:
    """Sort by a column; rows that are equal in it, and any unknown column, go by name."""
    by_name = sorted(rows, key=lambda row: row.name.lower(), reverse=descending and sort not in _SORT_KEYS)
    key = _SORT_KEYS.get(sort)
    return by_name if key is None else sorted(by_name, key=key, reverse=descending)
