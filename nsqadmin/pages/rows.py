"""Rows of the pages of topics, channels and nodes: figures, their trends, and troubles; PURE."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from nsqadmin.collecting.views import NodeView, TopicView
from nsqadmin.figures import attention
from nsqadmin.figures.activity import Activity
from nsqadmin.figures.attention import Concern, Level
from nsqadmin.figures.records import ChannelRecord, ClientRecord, TopicRecord
from nsqadmin.figures.slow import SILENT_S, ConsumerState
from nsqadmin.figures.sums import Share
from nsqadmin.figures.trend import Trend, empties_in, total_trend, trends


class ChannelRow:
    """A channel: its total, or its share on one node."""

    def __init__(
        self,
        record: ChannelRecord,
        trend: Trend | None,
        nodes: Sequence["ChannelRow"] = (),
        concerns: Sequence[Concern] = (),
    ) -> None:
        self.record = record
        self.name = record.channel_name
        self.trend = trend
        self.nodes = nodes
        # The concerns come from judging the whole cluster, so that all pages agree.
        self.concerns = concerns

    @classmethod
    def of(cls, total: ChannelRecord, view: TopicView) -> Self:
        """Make the row of a channel with a row for each node."""
        nodes = [ChannelRow(node, _channel_trend(node, view.shares)) for node in total.nodes]
        concerns = _concerns(view, total.channel_name)
        return cls(total, total_trend(node.trend for node in nodes), nodes, concerns)

    @property
    def level(self) -> Level | None:
        return attention.worst_level(self.concerns)

    @property
    def states(self) -> list[str]:
        return [concern.mark for concern in self.concerns]

    @property
    def empties_s(self) -> float | None:
        """Seconds until it is empty at the present rate; None if it is empty or gets no shorter."""
        return empties_in(self.record.depth, self.trend) if self.record.depth else None

    @property
    def delivery(self) -> tuple[float, float, float] | None:
        """Percent of messages delivered within the zone, within the region, and beyond; None if unknown."""
        total = self.record.delivery_msg_count
        if not total:
            return None
        zone, region = self.record.zone_local_msg_count, self.record.region_local_msg_count
        return 100 * zone / total, 100 * region / total, 100 * (total - zone - region) / total


class TopicRow:
    """A topic with its channels: its total, or its share on one node."""

    def __init__(
        self,
        record: TopicRecord,
        trend: Trend | None,
        channels: Sequence[ChannelRow],
        nodes: Sequence["TopicRow"] = (),
        concerns: Sequence[Concern] = (),
    ) -> None:
        self.record = record
        self.name = record.topic_name
        self.trend = trend
        self.channels = channels
        self.nodes = nodes
        self.concerns = concerns
        # Set for the row of a single node: replicas in sync, and replicas that are wanted.
        self.replicas_in_sync = self.replicas_wanted = 0

    @property
    def replicas_text(self) -> str:
        """Write how many of the wanted replicas are in sync; empty if none are wanted."""
        return f"{self.replicas_in_sync} of {self.replicas_wanted}" if self.replicas_wanted else ""

    @property
    def is_under_replicated(self) -> bool:
        return self.replicas_in_sync < self.replicas_wanted

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
            ChannelRow(
                channel,
                total_trend(by_channel.get(channel.channel_name, ())),
                concerns=_concerns(view, channel.channel_name),
            )
            for channel in total.channels
        ]
        return cls(total, total_trend(node.trend for node in nodes), channels, nodes, _concerns(view, ""))

    @classmethod
    def on_node(cls, record: TopicRecord, share: Share | None) -> Self:
        """Make the row of one node's share."""
        if share is None:
            return cls(record, None, [ChannelRow(channel, None) for channel in record.channels])
        own, moves = trends(*share[:3])
        row = cls(
            record,
            own,
            [ChannelRow(channel, trend) for channel, trend in zip(record.channels, moves, strict=True)],
        )
        row.replicas_in_sync, row.replicas_wanted = share[0].replicas_in_sync, share[0].replicas_wanted
        return row

    @property
    def all_concerns(self) -> list[Concern]:
        return [*self.concerns, *(concern for channel in self.channels for concern in channel.concerns)]

    @property
    def depth(self) -> int:
        """Messages waiting in the topic and in its channels."""
        return self.record.depth + sum(channel.record.depth for channel in self.channels)

    @property
    def in_flight(self) -> int:
        return sum(channel.record.in_flight_count for channel in self.channels)

    @property
    def consumers(self) -> int:
        return self.record.client_count


class ConsumerRow:
    """A consumer's connection to one node, and its activity."""

    def __init__(self, topic: str, channel: str, client: ClientRecord, activity: Activity) -> None:
        self.topic_name = topic
        self.channel_name = channel
        self.client = client
        self.stats = client.stats
        self.rate = activity.rate
        self.silent_s = activity.silent_s

    @property
    def name(self) -> str:
        return self.stats.client_id or self.stats.hostname or self.stats.remote_address

    @property
    def place(self) -> str:
        return f"{self.topic_name} / {self.channel_name}"

    @property
    def names(self) -> list[str]:
        """The texts in which a filter searches."""
        return [self.name, self.stats.hostname, self.stats.remote_address, self.stats.user_agent]

    @property
    def is_silent(self) -> bool:
        return bool(self.stats.in_flight_count) and (self.silent_s or 0.0) >= SILENT_S

    @property
    def states(self) -> list[str]:
        if self.is_silent:
            return ["silent"]
        return [] if self.stats.ready_count or self.stats.in_flight_count else ["takes none"]

    @property
    def attributes(self) -> list[str]:
        stats = self.stats
        found = {
            f"sampled {stats.sample_rate}%": bool(stats.sample_rate),
            "TLS": stats.tls,
            "deflate": stats.deflate,
            "snappy": stats.snappy,
            f"authed {stats.auth_identity}": stats.authed,
            stats.topology_region: bool(stats.topology_region),
            stats.topology_zone: bool(stats.topology_zone),
        }
        return [name for name, is_so in found.items() if is_so]

    @property
    def state(self) -> ConsumerState:
        """The state from which the reasons for a slow channel are derived."""
        stats = self.stats
        return ConsumerState(
            self.name, self.client.node, stats.in_flight_count, stats.ready_count, self.silent_s, self.rate
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "topic_name": self.topic_name,
            "channel_name": self.channel_name,
            **self.client.to_json(),
            "finished_per_second": self.rate,
            "silent_for": self.silent_s,
        }


def _channel_trend(record: ChannelRecord, shares: Mapping[str, Share]) -> Trend | None:
    share = shares.get(record.node)
    if share is None:
        return None
    _, moves = trends(*share[:3])
    names = [channel.channel_name for channel in share[0].channels]
    return moves[names.index(record.channel_name)] if record.channel_name in names else None


def _concerns(view: TopicView, channel: str) -> list[Concern]:
    """Return the shown concerns of a channel, or of the topic itself if *channel* is empty."""
    return [one for one in view.sum.concerns if one.channel == channel] if view.sum is not None else []


class NodeRow:
    """An nsqd with its last good figures."""

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
        self.concerns = view.concerns

    @property
    def level(self) -> Level | None:
        return attention.worst_level(self.concerns)

    @property
    def states(self) -> list[str]:
        old = ["old version"] if self.out_of_date else []
        return ([concern.mark for concern in self.concerns] or ["healthy"]) + old

    @property
    def zone(self) -> list[str]:
        return [name for name in (self.producer.topology_zone, self.producer.topology_region) if name]

    @property
    def names(self) -> list[str]:
        """The texts in which a filter searches."""
        return [self.address, self.producer.hostname]

    @property
    def topic_names(self) -> list[str]:
        """Topics that are listed or held; the two differ for a moment after a change."""
        listed = {entry.topic for entry in self.producer.topics}
        return sorted(listed | (self.look.topics.keys() if self.look is not None else set()))

    @property
    def differences(self) -> list[str]:
        """Sentences about topics that are held but not registered, or registered but not held."""
        if not self.answers or self.look is None or not self.view.listed:
            return []
        listed, held = {entry.topic for entry in self.producer.topics}, self.look.topics.keys()
        return [
            *(f"{name} is held and not registered" for name in sorted(held - listed)),
            *(f"{name} is registered and not held" for name in sorted(listed - held)),
        ]

    @property
    def urgency(self) -> float:
        """The order of nodes: those with troubles first, then those with wrong registrations."""
        return (self.level or 0) + (0.5 if self.differences else 0.0)

    @property
    def disk_free(self) -> int | None:
        """Free bytes of its disk; None if it does not report them."""
        disk = self.look.disk if self.look is not None else None
        return disk.free_bytes if disk is not None and disk.free_bytes >= 0 else None

    @property
    def disk_used(self) -> float | None:
        """The used share of its disk, 0 to 1; None if it does not report it."""
        disk = self.look.disk if self.look is not None else None
        if disk is None or disk.total_bytes <= 0:
            return None
        return 1 - disk.free_bytes / disk.total_bytes

    @property
    def fsync_s(self) -> float | None:
        """The time in seconds within which 99 of 100 recent fsyncs ended; None if there was none."""
        disk = self.look.disk if self.look is not None else None
        return disk.fsync_p99_ns / 1e9 if disk is not None and disk.fsync_p99_ns > 0 else None

    @property
    def drained(self) -> tuple[int, int] | None:
        """How many messages have left since the drain began, and of how many; None if it does not drain."""
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
            "under_replicated": self.look.under_replicated if self.look is not None else None,
            "delivered_by": [address for address, _ in self.view.owners],
            "messages_per_second": load.rate if load is not None else None,
            "depth": load.depth if load is not None else None,
            "in_flight_count": load.in_flight if load is not None else None,
            "deferred_count": load.deferred if load is not None else None,
            "client_count": load.consumers if load is not None else None,
            "message_count": load.messages if load is not None else None,
            "topics": len(self.topic_names),
            "disk_free_bytes": self.disk_free,
            "disk_full_in_s": self.view.full_in_s,
            "fsync_p99_s": self.fsync_s,
        }


def unregistered(nodes: Iterable[NodeView]) -> list[tuple[str, list[str]]]:
    """Return the topics that nodes hold but that no nsqlookupd lists for them, each with these nodes."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if node.answers and node.look is not None and node.listed:
            for name in node.look.topics.keys() - {entry.topic for entry in node.producer.topics}:
                found.setdefault(name, []).append(node.address)
    return sorted(found.items())
