"""A snapshot of an nsqd: its statistics, their sums, and their time; PURE."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from sys import intern
from typing import Self

from msgspec.structs import force_setattr

from nsqadmin.stats.activity import consumers_in
from nsqadmin.stats.instant import Instant
from nsqadmin.stats.sums import Share
from nsqadmin.stats.trend import Counted, EmptyTimes, NodePace, counts_then, older, topic_trend
from nsqcore.cluster.models import DiskStats, LatencyStats, NodeStats, PromotedCopy, TopicStats

# When the request for one topic of a node was sent, and the statistics in its answer.
Newer = tuple[int, tuple[TopicStats, ...]]


@dataclass(frozen=True, slots=True)
class Load:
    """The sums over all topics of a node."""

    depth: int = 0
    in_flight: int = 0
    deferred: int = 0
    consumers: int = 0
    messages: int = 0
    # When the oldest waiting message was published: 0 if there is none, -1 if not known.
    oldest_ns: int = 0
    # Messages per second; None until the second poll of the node.
    rate: float | None = 0.0

    @property
    def unfinished(self) -> int:
        return self.depth + self.in_flight + self.deferred

    def plus(self, other: "Load", sign: int = 1) -> "Load":
        unknown = self.rate is None or other.rate is None
        return Load(
            self.depth + sign * other.depth,
            self.in_flight + sign * other.in_flight,
            self.deferred + sign * other.deferred,
            self.consumers + sign * other.consumers,
            self.messages + sign * other.messages,
            # The removed part may contain the oldest message; the value stays until the next poll.
            self.oldest_ns if sign < 0 else older(self.oldest_ns, other.oldest_ns),
            None if unknown else max(0.0, (self.rate or 0.0) + sign * (other.rate or 0.0)),
        )


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """The last good statistics of a node. ``at_ns`` is for measuring spans, ``at_s`` is the time of day."""

    at_ns: int
    at_s: float
    version: str
    health: str
    start_time: int
    topics: dict[str, TopicStats]
    counts: tuple[Counted, ...]
    load: Load
    disk: DiskStats | None = None
    # Topics with fewer replicas in sync than wanted.
    under_replicated: int = 0
    # Promoted copies on this node.
    promoted: tuple[PromotedCopy, ...] = ()
    # Topics with newer statistics than the others, and their time.
    later_ns: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, stats: NodeStats, pace: NodePace, at_ns: int, at_s: float) -> Self:
        """Make a snapshot of *stats*; *pace* remembers the node's earlier counts."""
        if found := consumers_in(stats.topics, at_s):
            present = {topic.topic_name for topic in stats.topics}
            known = {key: seen for key, seen in pace.consumers.items() if key[0] in present}
            pace.consumers = known | found
        _share_names(stats.topics)
        pace.empty_ns = _empty_since(stats.topics, pace.empty_ns, round(at_s * 1e9))
        without_deferred(stats.topics, pace.empty_ns)
        samples = pace.note(stats.topics, at_ns, stats.start_time)
        return cls(
            at_ns,
            at_s,
            stats.version,
            stats.health,
            stats.start_time,
            {topic.topic_name: topic for topic in stats.topics},
            samples,
            _load(stats.topics, samples, at_ns),
            stats.disk,
            stats.under_replicated,
            stats.promoted,
        )

    @property
    def promoted_pending(self) -> dict[str, int]:
        """The pending messages of the promoted copies here, by identity of the origin."""
        found: dict[str, int] = {}
        for one in self.promoted:
            found[one.identity] = found.get(one.identity, 0) + one.pending
        return found

    @property
    def is_replicated(self) -> bool:
        """Whether every topic with messages has a replica in sync."""
        return all(
            one.replicas_in_sync
            for one in self.topics.values()
            if one.depth or any(channel.unfinished for channel in one.channels)
        )

    def without_consumers(self) -> Iterator[tuple[tuple[str, str], int]]:
        """Yield the channels with a depth and without consumers, each with its depth."""
        for topic in self.topics.values():
            for channel in topic.channels:
                if channel.depth and not channel.client_count:
                    yield (topic.topic_name, channel.channel_name), channel.depth

    @property
    def at(self) -> Instant:
        return Instant(self.at_ns, self.at_s)

    def with_topics(self, newer: Mapping[str, Newer]) -> Self:
        """Return the snapshot with newer statistics of some topics, and without topics that it lost."""
        if not newer:
            return self
        topics = dict(self.topics)
        later = dict(self.later_ns)
        load = self.load
        for name, (at_ns, found) in newer.items():
            if (before := topics.pop(name, None)) is not None:
                load = load.plus(_load((before,), self.counts, later.get(name, self.at_ns)), -1)
            later[name] = at_ns
            for topic in found:
                topics[topic.topic_name] = topic
                load = load.plus(_load((topic,), self.counts, at_ns))
        return replace(self, topics=topics, load=load, later_ns=later)

    def with_topic_of(self, newer: "NodeSnapshot", topic: str) -> Self:
        """Return the snapshot with the statistics of *topic* in *newer*, or without it."""
        found = (newer.topics[topic],) if topic in newer.topics else ()
        return self.with_topics({topic: (newer.later_ns.get(topic, newer.at_ns), found)})

    def share(self, topic: str, node: str) -> Share:
        """Return the statistics of *topic* on this node in the form for summing."""
        return self.topics[topic], self.counts, self.later_ns.get(topic, self.at_ns), node


def _empty_since(topics: Iterable[TopicStats], known: EmptyTimes, at_ns: int) -> EmptyTimes:
    """Return when each channel that has deferred messages was last seen with none waiting."""
    found: EmptyTimes = {}
    for topic in topics:
        for channel in topic.channels:
            if channel.deferred_count:
                key = topic.topic_name, channel.channel_name
                if not channel.depth:
                    found[key] = at_ns
                elif key in known:
                    found[key] = known[key]
    return found


def without_deferred(topics: Iterable[TopicStats], empty_ns: EmptyTimes) -> None:
    """Make the time of each channel's oldest message that of the oldest waiting one.

    nsqd counts deferred messages too. Where there are some, the oldest waiting message is as old as the time
    since none waited, at most; that is not known of a channel that was never seen empty.
    """
    for topic in topics:
        for channel in topic.channels:
            oldest_ns = channel.oldest_message_time
            if not channel.depth:
                oldest_ns = 0
            elif channel.deferred_count and oldest_ns > 0:
                empty = empty_ns.get((topic.topic_name, channel.channel_name))
                oldest_ns = -1 if empty is None else max(oldest_ns, empty)
            if oldest_ns != channel.oldest_message_time:
                force_setattr(channel, "oldest_message_time", oldest_ns)


def _share_names(topics: Iterable[TopicStats]) -> None:
    """Store each name once for all nodes and snapshots, and drop consumers and latencies without content.

    A cluster has a hundred thousand of each. No other code has these records yet, so they may be changed.
    """
    for topic in topics:
        force_setattr(topic, "topic_name", intern(topic.topic_name))
        if _is_empty(topic.listed_latency):
            force_setattr(topic, "listed_latency", None)
        for channel in topic.channels:
            force_setattr(channel, "channel_name", intern(channel.channel_name))
            force_setattr(channel, "listed_clients", None)
            if _is_empty(channel.listed_latency):
                force_setattr(channel, "listed_latency", None)


def _is_empty(latency: LatencyStats | None) -> bool:
    return latency is not None and not latency.count and not latency.listed_percentiles


def _load(topics: Iterable[TopicStats], samples: Sequence[Counted], at_ns: int) -> Load:
    depth = in_flight = deferred = consumers = messages = 0
    oldest_ns = 0
    rate: float | None = 0.0
    for topic in topics:
        depth += topic.depth
        messages += topic.message_count
        for channel in topic.channels:
            depth += channel.depth
            in_flight += channel.in_flight_count
            deferred += channel.deferred_count
            consumers += channel.client_count
            oldest_ns = older(oldest_ns, channel.oldest_message_time)
        then = counts_then(topic, samples, at_ns)
        rate = None if rate is None or then is None else rate + topic_trend(topic, *then).messages
    return Load(depth, in_flight, deferred, consumers, messages, oldest_ns, rate)
