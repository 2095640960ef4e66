"""One look at one nsqd: its figures, what they come to, and when they were taken; PURE."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from sys import intern
from typing import Self

from msgspec.structs import force_setattr

from nsqadmin.figures.sums import Share
from nsqadmin.figures.trend import Counted, NodePace, counts_then, older, topic_trend
from nsqcore.cluster.models import CarriedHome, DiskStats, LatencyStats, NodeStats, TopicStats

# The figures of one topic of a node, asked for by themselves, and when the question left.
Newer = tuple[int, tuple[TopicStats, ...]]


@dataclass(frozen=True, slots=True)
class Load:
    """What one node holds in all its topics together."""

    depth: int = 0
    in_flight: int = 0
    deferred: int = 0
    consumers: int = 0
    messages: int = 0
    # When the oldest message was published that it owes: 0 is none, -1 is not known.
    oldest_ns: int = 0
    # None while the node has been looked at once only.
    rate: float | None = 0.0

    @property
    def owed(self) -> int:
        return self.depth + self.in_flight + self.deferred

    def plus(self, other: "Load", sign: int = 1) -> "Load":
        unknown = self.rate is None or other.rate is None
        return Load(
            self.depth + sign * other.depth,
            self.in_flight + sign * other.in_flight,
            self.deferred + sign * other.deferred,
            self.consumers + sign * other.consumers,
            self.messages + sign * other.messages,
            # What is taken away may have been the oldest: until the next look it is as it was.
            self.oldest_ns if sign < 0 else older(self.oldest_ns, other.oldest_ns),
            None if unknown else max(0.0, (self.rate or 0.0) + sign * (other.rate or 0.0)),
        )


@dataclass(frozen=True, slots=True)
class Look:
    """The last good figures of a node. ``at_ns`` is for spans, ``at_s`` is the time of day."""

    at_ns: int
    at_s: float
    version: str
    health: str
    start_time: int
    topics: dict[str, TopicStats]
    marks: tuple[Counted, ...]
    load: Load
    disk: DiskStats | None = None
    # Topics with fewer copies than are wanted.
    under_copied: int = 0
    # Other nodes that it carries.
    carries: tuple[CarriedHome, ...] = ()
    # Topics whose figures were taken later than the others.
    later_ns: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, stats: NodeStats, pace: NodePace, at_ns: int, at_s: float) -> Self:
        """Take *stats* in; *pace* is what is remembered of the node's earlier figures."""
        _share_names(stats.topics)
        marks = pace.note(stats.topics, at_ns, stats.start_time)
        return cls(
            at_ns,
            at_s,
            stats.version,
            stats.health,
            stats.start_time,
            {topic.topic_name: topic for topic in stats.topics},
            marks,
            _load(stats.topics, marks, at_ns),
            stats.disk,
            stats.under_copied,
            stats.carries,
        )

    def with_topics(self, newer: Mapping[str, Newer]) -> Self:
        """Return the look with newer figures of some topics, or without those that the node has no more."""
        if not newer:
            return self
        topics = dict(self.topics)
        later = dict(self.later_ns)
        load = self.load
        for name, (at_ns, found) in newer.items():
            if (before := topics.pop(name, None)) is not None:
                load = load.plus(_load((before,), self.marks, later.get(name, self.at_ns)), -1)
            later[name] = at_ns
            for topic in found:
                topics[topic.topic_name] = topic
                load = load.plus(_load((topic,), self.marks, at_ns))
        return replace(self, topics=topics, load=load, later_ns=later)

    def share(self, topic: str, node: str) -> Share:
        """Return what the node holds of *topic*, as it is added up."""
        return self.topics[topic], self.marks, self.later_ns.get(topic, self.at_ns), node


def _share_names(topics: Iterable[TopicStats]) -> None:
    """Keep each name once, however many nodes and looks have it, and nothing of latencies that say nothing.

    A cluster has a hundred thousand of each. Nobody else has seen these records yet.
    """
    for topic in topics:
        force_setattr(topic, "topic_name", intern(topic.topic_name))
        if _says_nothing(topic.listed_latency):
            force_setattr(topic, "listed_latency", None)
        for channel in topic.channels:
            force_setattr(channel, "channel_name", intern(channel.channel_name))
            if _says_nothing(channel.listed_latency):
                force_setattr(channel, "listed_latency", None)


def _says_nothing(latency: LatencyStats | None) -> bool:
    return latency is not None and not latency.count and not latency.listed_percentiles


def _load(topics: Iterable[TopicStats], marks: Sequence[Counted], at_ns: int) -> Load:
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
        then = counts_then(topic, marks, at_ns)
        rate = None if rate is None or then is None else rate + topic_trend(topic, *then).messages
    return Load(depth, in_flight, deferred, consumers, messages, oldest_ns, rate)
