"""The broker's metrics for Prometheus, read at scrape time."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from nsqclient.wire.durations import SECOND
from nsqclient.wire.names import is_ephemeral
from nsqcore.http.metrics import Family, PacedCollector, Sample
from nsqd.engine import all_logs, promoted
from nsqd.engine.channel import Channel
from nsqd.engine.settings import NOTHING
from nsqd.engine.topic import Topic
from nsqd.server.checkpointer import Checkpointer
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.http.drain import Drain
from nsqd.server.lookup.peer import LookupPeers
from nsqd.server.statistics.replication import replication_metrics
from nsqd.server.statistics.stats import StatsReport
from nsqd.storage.topic_log import store_of

_TOPIC: Final = ("topic",)
_CHANNEL: Final = ("topic", "channel")
_LOCALITIES: Final = ("zone", "region", "elsewhere")


def _size(topic: Topic) -> int:
    store = store_of(topic)
    return store.segments.size if store else 0


# name, help, value
_TopicMetric = tuple[str, str, Callable[[Topic], float]]
_ChannelMetric = tuple[str, str, Callable[[Channel], float]]
_TOPIC_BACKLOG: Final[_TopicMetric] = (
    "depth",
    "messages that wait for a first channel or for unpausing",
    all_logs.count,
)
_TOPIC_GAUGES: Final[tuple[_TopicMetric, ...]] = (
    ("paused", "1 while paused", all_logs.is_paused),
    ("log_bytes", "message data on disk", _size),
)
_TOPIC_COUNTERS: Final[tuple[_TopicMetric, ...]] = (
    ("messages", "messages published", lambda topic: topic.message_count),
    ("message_bytes", "bytes of the bodies of published messages", lambda topic: topic.message_bytes),
    (
        "repeated",
        "publishes that stored nothing because their dedup-id was already published within the window",
        lambda topic: topic.published.repeated if topic.published else 0,
    ),
)
_DEPTH: Final = ("depth", "messages that wait, also those on their way to the dead letters")
_CHANNEL_BACKLOG: Final[tuple[_ChannelMetric, ...]] = (
    ("in_flight", "messages delivered and not answered", all_logs.in_flight),
    ("deferred", "messages deferred until their due time", all_logs.deferred),
)
_CHANNEL_GAUGES: Final[tuple[_ChannelMetric, ...]] = (
    ("consumers", "subscribed connections", lambda channel: len(channel.consumers)),
    ("paused", "1 while paused", all_logs.is_paused),
)
_CHANNEL_COUNTERS: Final[tuple[_ChannelMetric, ...]] = (
    ("messages", "messages that the channel got since it was created", lambda channel: channel.message_count),
    ("requeued", "messages requeued by consumers", lambda channel: channel.requeue_count),
    ("returned", "messages given back because their consumer left", lambda channel: channel.returned_count),
    ("timed_out", "messages not answered in time", lambda channel: channel.timeout_count),
    ("lost", "pending messages that are no longer readable", lambda channel: channel.lost_count),
)
# Shown for channels with a policy, or from which a policy has removed messages.
_REMOVED_BY_POLICY: Final[tuple[_ChannelMetric, ...]] = (
    (
        "dropped",
        "messages dropped because a policy bounds the backlog",
        lambda channel: channel.dropped_count,
    ),
    (
        "expired",
        "messages that a policy expired because they waited too long",
        lambda channel: channel.expired_count,
    ),
    ("dead", "messages that went to the dead letters", lambda channel: channel.dead_count),
)


class _BacklogFilter:
    """Whether one scrape shows messages that are pending."""

    def __init__(self) -> None:
        self.any = False

    def seen(self, samples: Iterator[Sample]) -> Iterator[Sample]:
        for labels, figure in samples:
            # As in a drain, ephemeral topics and channels have no pending messages: they end with the node.
            self.any = self.any or (figure > 0 and not any(map(is_ephemeral, labels)))
            yield labels, figure


class NsqdCollector(PacedCollector):
    """One series per topic and per channel; none per client, so their number cannot grow without bound."""

    def __init__(
        self, stats: StatsReport, checkpoints: Checkpointer, lookups: LookupPeers, drain: Drain
    ) -> None:
        self._stats = stats
        self._broker = stats.broker
        self._checkpoints = checkpoints
        self._lookups = lookups
        self._drain = drain

    def families(self) -> Iterator[Family]:
        yield from self._node()
        yield from replication_metrics(self._stats.replication)
        pending = _BacklogFilter()
        name, text, of_topic = _TOPIC_BACKLOG
        yield Family(f"nsqd_topic_{name}", text, pending.seen(self._of_topics(of_topic)), _TOPIC)
        for name, text, of_channel in ((*_DEPTH, self._depth), *_CHANNEL_BACKLOG):
            yield Family(f"nsqd_channel_{name}", text, pending.seen(self._of_channels(of_channel)), _CHANNEL)
        self._drain.scraped_with_backlog = pending.any
        for name, text, figure in _TOPIC_GAUGES:
            yield Family(f"nsqd_topic_{name}", text, self._of_topics(figure), _TOPIC)
        unreadable = {channel.topic_name for channel in self._broker.stalled}
        yield Family(
            "nsqd_topic_readable",
            "0 while messages that wait cannot be read from the disk",
            self._of_topics(lambda topic: topic.name not in unreadable),
            _TOPIC,
        )
        failed = self._stats.health.failed_fsyncs
        yield Family(
            "nsqd_topic_writable",
            "0 from a failed fsync until a restart: the topic accepts no publishes",
            self._of_topics(lambda topic: topic.name not in failed),
            _TOPIC,
        )
        for name, text, figure in _TOPIC_COUNTERS:
            yield Family(f"nsqd_topic_{name}", text, self._of_topics(figure), _TOPIC, counter=True)
        for name, text, of_channel in _CHANNEL_GAUGES:
            yield Family(f"nsqd_channel_{name}", text, self._of_channels(of_channel), _CHANNEL)
        yield Family(
            "nsqd_channel_oldest_message_age_seconds",
            "age of the oldest pending message, 0 without one",
            pending.seen(self._oldest(time.time_ns())),
            _CHANNEL,
        )
        for name, text, of_channel in _CHANNEL_COUNTERS:
            yield Family(f"nsqd_channel_{name}", text, self._of_channels(of_channel), _CHANNEL, counter=True)
        for name, text, of_channel in _REMOVED_BY_POLICY:
            samples = self._of_channels(of_channel, ruled=True)
            yield Family(f"nsqd_channel_{name}", text, samples, _CHANNEL, counter=True)
        if self._broker.limits.topology_aware:
            # Only with topology-aware consumption, because it adds three series per channel.
            text = "messages delivered near and far"
            yield Family("nsqd_channel_delivered", text, self._delivered(), (*_CHANNEL, "to"), counter=True)

    def _node(self) -> Iterator[Family]:
        def one(name: str, text: str, figure: float, *, counter: bool = False) -> Family:
            return Family(name, text, [((), figure)], counter=counter)

        stats = self._stats
        yield one("nsqd_healthy", "1 while the disk can be written and read", stats.health.ok)
        yield one(
            "nsqd_checkpoint_lag_seconds",
            "age of the last checkpoint: messages finished since then could be delivered again after a crash",
            self._checkpoints.lag_s,
        )
        yield one(
            "nsqd_disk_low", "1 while publishes are refused below --disk-watermark", self._broker.disk_low
        )
        if stats.watermark.total >= 0:
            yield one(
                "nsqd_disk_free_bytes", "free bytes of the disk with the messages", stats.watermark.free
            )
            yield one("nsqd_disk_size_bytes", "bytes of the disk with the messages", stats.watermark.total)
        yield one("nsqd_draining", "1 from the announcement of a drain to its end", self._broker.leaving)
        yield one(
            "nsqd_drain_remaining",
            "messages that a drain still waits for, 0 without a drain",
            self._drain.remaining(),
        )
        yield one("nsqd_connections", "client connections open", len(stats.clients.connections))
        accepted = stats.clients.accepted
        yield one("nsqd_connections_accepted", "client connections since start", accepted, counter=True)
        yield one("nsqd_fsyncs", "fsyncs of logs since start", stats.fsync.count, counter=True)
        yield one("nsqd_fsync_seconds", "time spent in fsyncs of logs", stats.fsync.seconds, counter=True)
        yield Family(
            "nsqd_lookupd_connected",
            "1 while registered with that nsqlookupd",
            [((peer.address,), peer.connected) for peer in self._lookups.peers()],
            ("address",),
        )

    def _depth(self, channel: Channel) -> int:
        return all_logs.depth(channel, asks_holders=self._broker.awaits_channel_state)

    # Other tasks run while these are read: a topic that they delete is in some of the families.

    def _of_topics(self, figure: Callable[[Topic], float]) -> Iterator[Sample]:
        for topic in list(self._broker.topics.values()):
            yield (topic.name,), figure(topic)

    def _of_channels(self, figure: Callable[[Channel], float], *, ruled: bool = False) -> Iterator[Sample]:
        """Samples of all channels; if *ruled*, of those with a policy or a value other than 0."""
        for channel in self._channels():
            if ruled and channel.settings is NOTHING and not figure(channel):
                continue
            yield (channel.topic_name, channel.name), figure(channel)

    def _oldest(self, now_ns: int) -> Iterator[Sample]:
        self._stats.ages.forget_deleted()
        for topic in list(self._broker.topics.values()):
            for channel in list(topic.channels.values()):
                published_ns = self._stats.ages.oldest_ns(topic, channel, clock_ns())
                age_ns = max(0, now_ns - published_ns) if published_ns else 0
                yield (topic.name, channel.name), age_ns / SECOND

    def _delivered(self) -> Iterator[Sample]:
        for channel in self._channels():
            for place, count in zip(_LOCALITIES, channel.zones, strict=True):
                yield (channel.topic_name, channel.name, place), count

    def _channels(self) -> Iterator[Channel]:
        for topic in list(self._broker.topics.values()):
            for channel in list(topic.channels.values()):
                promoted.gather_counts(channel)
                yield channel
