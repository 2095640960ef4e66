"""One look at one nsqd: its figures, what they come to, and when they were taken; PURE."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from nsqadmin.figures.trend import Mark, Pace, counts_then, topic_trend
from nsqcore.cluster.models import NodeStats, TopicStats


@dataclass(frozen=True, slots=True)
class Load:
    """What one node holds in all its topics together."""

    depth: int
    in_flight: int
    deferred: int
    consumers: int
    messages: int
    rate: float | None

    @property
    def owed(self) -> int:
        return self.depth + self.in_flight + self.deferred


@dataclass(frozen=True, slots=True)
class Look:
    """The last good figures of a node. ``at_ns`` is for spans, ``at_s`` is the time of day."""

    at_ns: int
    at_s: float
    version: str
    health: str
    start_time: int
    topics: dict[str, TopicStats]
    marks: tuple[Mark, ...]
    load: Load

    @classmethod
    def of(cls, stats: NodeStats, pace: Pace, at_ns: int, at_s: float) -> Self:
        """Take *stats* in; *pace* is what is remembered of the node's earlier figures."""
        marks = pace.note(stats.topics, at_ns)
        return cls(
            at_ns,
            at_s,
            stats.version,
            stats.health,
            stats.start_time,
            {topic.topic_name: topic for topic in stats.topics},
            marks,
            _load(stats.topics, marks, at_ns),
        )

    def with_topic(self, name: str, found: Iterable[TopicStats]) -> Self:
        """Return the look with newer figures of one topic, or without it when the node has it no more."""
        topics = {**self.topics}
        topics.pop(name, None)
        topics.update({topic.topic_name: topic for topic in found})
        return replace(self, topics=topics, load=_load(topics.values(), self.marks, self.at_ns))


def _load(topics: Iterable[TopicStats], marks: Sequence[Mark], at_ns: int) -> Load:
    depth = in_flight = deferred = consumers = messages = 0
    rate: float | None = None
    for topic in topics:
        depth += topic.depth
        messages += topic.message_count
        for channel in topic.channels:
            depth += channel.depth
            in_flight += channel.in_flight_count
            deferred += channel.deferred_count
            consumers += channel.client_count
        then = counts_then(topic, marks, at_ns)
        if then is not None:
            rate = (rate or 0.0) + topic_trend(topic, *then).messages
    return Load(depth, in_flight, deferred, consumers, messages, rate)
