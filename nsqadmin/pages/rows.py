"""What the pages of one topic, channel or node show: figures, how fast they move, what is wrong; PURE."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from nsqadmin.collecting.look import Look
from nsqadmin.collecting.views import NodeView, TopicView
from nsqadmin.figures import attention
from nsqadmin.figures.attention import Concern, Level
from nsqadmin.figures.records import ALL_NODES, ChannelRecord, TopicRecord
from nsqadmin.figures.trend import Trend, total_trend, trends
from nsqcore.cluster.models import TopicStats

Share = tuple[TopicStats, Look]


class ChannelRow:
    """A channel: its total, or what one node holds of it."""

    def __init__(
        self, record: ChannelRecord, trend: Trend | None, nodes: Sequence["ChannelRow"] = ()
    ) -> None:
        self.record = record
        self.name = record.channel_name
        self.trend = trend
        self.nodes = nodes
        # A node's share may look bad while the channel is well, so only totals are judged.
        self.concerns = attention.of_channel(record, trend) if record.node == ALL_NODES else []

    @classmethod
    def of(cls, total: ChannelRecord, shares: Mapping[str, Share]) -> Self:
        """Make the row of a channel with a row for each node."""
        nodes = [ChannelRow(node, _channel_trend(node, shares)) for node in total.nodes]
        return cls(total, total_trend(node.trend for node in nodes), nodes)

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

    def __init__(
        self,
        record: TopicRecord,
        trend: Trend | None,
        channels: Sequence[ChannelRow],
        nodes: Sequence["TopicRow"] = (),
    ) -> None:
        self.record = record
        self.name = record.topic_name
        self.trend = trend
        self.channels = channels
        self.nodes = nodes
        self.concerns = (
            attention.of_topic(self.name, record.depth, paused=record.paused, has_channels=bool(channels))
            if record.node == ALL_NODES
            else []
        )

    @classmethod
    def of(cls, view: TopicView) -> Self:
        """Make the row of a topic with a row for each channel and each node."""
        total = view.total
        nodes = [TopicRow.on_node(node, view.shares.get(node.node)) for node in total.nodes]
        by_channel: dict[str, list[Trend | None]] = {}
        for node in nodes:
            for channel in node.channels:
                by_channel.setdefault(channel.name, []).append(channel.trend)
        channels = [
            ChannelRow(channel, total_trend(by_channel.get(channel.channel_name, ())))
            for channel in total.channels
        ]
        return cls(total, total_trend(node.trend for node in nodes), channels, nodes)

    @classmethod
    def on_node(cls, record: TopicRecord, share: Share | None) -> Self:
        """Make the row of one node's share."""
        if share is None:
            return cls(record, None, [ChannelRow(channel, None) for channel in record.channels])
        stats, look = share
        own, moves = trends(stats, look.marks, look.at_ns)
        return cls(
            record,
            own,
            [ChannelRow(channel, trend) for channel, trend in zip(record.channels, moves, strict=True)],
        )

    @property
    def all_concerns(self) -> list[Concern]:
        return [*self.concerns, *(concern for channel in self.channels for concern in channel.concerns)]

    @property
    def depth(self) -> int:
        """Messages that wait in the topic or in any of its channels."""
        return self.record.depth + sum(channel.record.depth for channel in self.channels)

    @property
    def in_flight(self) -> int:
        return sum(channel.record.in_flight_count for channel in self.channels)

    @property
    def consumers(self) -> int:
        return self.record.client_count


def _channel_trend(record: ChannelRecord, shares: Mapping[str, Share]) -> Trend | None:
    share = shares.get(record.node)
    if share is None:
        return None
    stats, look = share
    _, moves = trends(stats, look.marks, look.at_ns)
    names = [channel.channel_name for channel in stats.channels]
    return moves[names.index(record.channel_name)] if record.channel_name in names else None


class NodeRow:
    """An nsqd, with what it held when it last answered."""

    def __init__(self, view: NodeView) -> None:
        self.view = view
        self.producer = view.producer
        self.address = view.address
        self.out_of_date = view.out_of_date
        self.answers = view.answers
        self.error = view.error
        self.look = view.look
        self.load = view.look.load if view.look is not None else None
        self.tombstoned = {entry.topic for entry in view.producer.topics if entry.tombstoned}
        self.concerns = concerns_of(view)

    @property
    def level(self) -> Level | None:
        return attention.worst_level(self.concerns)

    @property
    def topic_names(self) -> list[str]:
        """Topics as listed and as held, which differ for a moment after a change."""
        listed = {entry.topic for entry in self.producer.topics}
        return sorted(listed | (self.look.topics.keys() if self.look is not None else set()))

    @property
    def drained(self) -> tuple[int, int] | None:
        """How many messages of how many are gone since the node drains; None when it does not."""
        remaining, first = self.view.remaining, self.view.draining_from
        return None if remaining is None else (max(0, first - remaining), first)

    def to_json(self) -> dict[str, Any]:
        load = self.load
        return {
            "node": self.address,
            "hostname": self.producer.hostname,
            "version": self.producer.version,
            "state": [concern.mark for concern in self.concerns],
            "answers": self.answers,
            "figures_at": self.look.at_s if self.look is not None else None,
            "draining_remaining": self.view.remaining,
            "messages_per_second": load.rate if load is not None else None,
            "depth": load.depth if load is not None else None,
            "in_flight_count": load.in_flight if load is not None else None,
            "deferred_count": load.deferred if load is not None else None,
            "client_count": load.consumers if load is not None else None,
            "message_count": load.messages if load is not None else None,
            "topics": len(self.topic_names),
        }


def concerns_of(view: NodeView) -> list[Concern]:
    """Judge an nsqd by how it answered."""
    look = view.look
    return attention.of_node(
        view.address,
        silent=view.error.reason if view.error is not None else "",
        held=look.load.owed if look is not None else 0,
        health=look.health if look is not None else "",
        remaining=view.remaining,
        listed=view.listed,
    )
