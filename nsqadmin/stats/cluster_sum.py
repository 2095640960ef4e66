"""Every topic of the cluster added up, and the sums over all of them; PURE."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from nsqadmin.stats.problems import Problem
from nsqadmin.stats.sums import TopicSum
from nsqadmin.stats.trend import Trend, older


@dataclass(slots=True)
class Totals:
    """The sums over all topics."""

    depth: int = 0
    in_flight: int = 0
    deferred: int = 0
    consumers: int = 0
    channel_messages: int = 0
    # Messages per second; None while a topic's rate is not known.
    rate: float | None = 0.0
    finished: float | None = 0.0
    # Messages that arrive in channels per second.
    channel_rate: float | None = 0.0
    oldest_ns: int = 0

    def add(self, topic: TopicSum) -> None:
        self.depth += topic.depth
        self.in_flight += topic.in_flight
        self.deferred += topic.deferred
        self.consumers += topic.consumers
        self.rate = _plus(self.rate, topic.trend)
        for channel in topic.channels:
            self.channel_messages += channel.message_count
            self.oldest_ns = older(self.oldest_ns, channel.oldest_ns)
            self.channel_rate = _plus(self.channel_rate, channel.trend)
            trend = channel.trend
            if self.finished is not None:
                self.finished = None if trend is None else self.finished + trend.finished


def _plus(rate: float | None, trend: Trend | None) -> float | None:
    return None if rate is None or trend is None else rate + trend.messages


class ClusterSum:
    """Every topic, and the sums over all of them. Nothing in it changes after it was made."""

    def __init__(self, topics: dict[str, TopicSum], idle: Iterable[str] = ()) -> None:
        self.topics = topics
        # Topics that are registered but that no nsqd has.
        self.idle = tuple(sorted(idle))

    @cached_property
    def rows(self) -> list[TopicSum]:
        """All topics sorted by name, idle ones included."""
        idle = (TopicSum(name, is_idle=True) for name in self.idle)
        return sorted((*self.topics.values(), *idle), key=lambda topic: (topic.name.lower(), topic.name))

    @cached_property
    def totals(self) -> Totals:
        totals = Totals()
        for topic in self.topics.values():
            totals.add(topic)
        return totals

    @cached_property
    def problems(self) -> list[Problem]:
        """Return the problems of topics and channels at this moment."""
        return [problem for topic in self.topics.values() for problem in topic.problems]

    def show(self, problems: Iterable[Problem]) -> None:
        """Assign each topic and channel its own problems among *problems*."""
        shown: dict[str, list[Problem]] = {}
        for problem in problems:
            if problem.topic:
                shown.setdefault(problem.topic, []).append(problem)
        for name, topic in self.topics.items():
            if topic.problems or name in shown:
                topic.show(shown.get(name, ()))

    def changed(self, name: str, topic: TopicSum | None, idle: Iterable[str]) -> "ClusterSum":
        """Return the cluster with topic *name* replaced by *topic*, or without it."""
        topics = dict(self.topics)
        if topic is None:
            topics.pop(name, None)
        else:
            topics[name] = topic
        return ClusterSum(topics, idle)
