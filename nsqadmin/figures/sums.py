"""The whole cluster added up for lists that show all of it: only the figures they show, for speed; PURE.

The records of :mod:`nsqadmin.figures.records` have all figures and are made for one topic at a time; these
sums are made of every channel on every node each few seconds.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import msgspec

from nsqadmin.figures import attention
from nsqadmin.figures.attention import Concern, Level, ShareState, grows_there
from nsqadmin.figures.trend import (
    Counted,
    Trend,
    add_channel,
    counts_then,
    empties_in,
    older,
    topic_trend,
)
from nsqcore.cluster.models import ChannelStats, TopicStats

# One node's share of a topic: its figures, the marks to compare them with, when they were taken, the node.
Share = tuple[TopicStats, Sequence[Counted], int, str]


class ChannelSum(msgspec.Struct, gc=False):
    """A channel over all nodes. There are a hundred thousand of them, so it has only necessary figures."""

    topic_name: str
    channel_name: str
    depth: int = 0
    backend_depth: int = 0
    in_flight_count: int = 0
    deferred_count: int = 0
    client_count: int = 0
    message_count: int = 0
    dead_count: int = 0
    # When the oldest waiting message was published: 0 if there is none, -1 if not known.
    oldest_ns: int = 0
    paused: bool = False
    # On how many nodes it is.
    nodes: int = 1
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
    # On how many nodes it has fewer replicas in sync than wanted. The trouble is reported for these nodes.
    under_replicated: int = 0
    trend: Trend | None = None
    channels: list[ChannelSum] = field(default_factory=list)
    concerns: Sequence[Concern] = ()

    @property
    def memory_depth(self) -> int:
        return self.depth - self.backend_depth

    @property
    def level(self) -> Level | None:
        return Level.TROUBLE if self.under_replicated else attention.worst_level(self.concerns)

    @property
    def states(self) -> list[str]:
        own = ["inactive"] * self.is_idle + [attention.UNDER_REPLICATED] * bool(self.under_replicated)
        return [concern.mark for concern in self.marks] + own

    @property
    def channel_names(self) -> list[str]:
        return [channel.channel_name for channel in self.channels]

    @property
    def names(self) -> list[str]:
        """The names by which a filter finds it."""
        return [self.name, *self.channel_names]

    @property
    def finished(self) -> float | None:
        """Return the messages that its channels finish per second; None if one rate is not known."""
        total = 0.0
        for channel in self.channels:
            if channel.trend is None:
                return None
            total += channel.trend.finished
        return total

    @property
    def empties_s(self) -> float | None:
        """Return the seconds until all its channels are empty at the present rate; None if not known."""
        times = [empties_in(channel.depth, channel.trend) for channel in self.channels if channel.depth]
        return None if None in times or not times else max(time for time in times if time is not None)

    @property
    def oldest_ns(self) -> int:
        """Return when the oldest waiting message was published: 0 if there is none, -1 if not known."""
        found = 0
        for channel in self.channels:
            found = older(found, channel.oldest_ns)
        return found

    def show(self, concerns: Sequence[Concern]) -> None:
        """Make the topic and its channels show *concerns*."""
        self.concerns = concerns
        for channel in self.channels:
            channel.concerns = [one for one in concerns if one.channel == channel.channel_name] or ()

    @property
    def marks(self) -> list[Concern]:
        """One concern for each mark, the worst with that mark."""
        kinds: dict[str, Concern] = {}
        for concern in attention.worst_first(self.concerns):
            kinds.setdefault(concern.mark, concern)
        return list(kinds.values())

    def to_json(self) -> dict[str, Any]:
        """Return what the row shows."""
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
            "oldest_message_time": self.oldest_ns,
            "message_count": self.message_count,
            "channels": [channel.channel_name for channel in self.channels],
        }


def add_up(name: str, shares: Iterable[Share], now_s: float = 0.0) -> TopicSum:
    """Add up one topic over the nodes that have it; *now_s* is the time of day."""
    topic = TopicSum(name)
    channels: dict[str, ChannelSum] = {}
    # A rate is unknown if a part of it is.
    unknown: set[str] = set()
    own: Trend | None = None
    own_known = True
    waiting: dict[str, list[ShareState]] = {}
    for stats, marks, at_ns, node in shares:
        topic.nodes += 1
        topic.own_depth += stats.depth
        topic.backend_depth += stats.backend_depth
        topic.message_count += stats.message_count
        topic.paused |= stats.paused
        if stats.replicas_in_sync < stats.replicas_wanted:
            topic.under_replicated += 1
        then = counts_then(stats, marks, at_ns)
        counts, span_s = then or ((), 0.0)
        if counts:
            moved = topic_trend(stats, counts, span_s)
            if own is None:
                own = moved
            else:
                own.add(moved)
        else:
            own_known = False
        for place, share in enumerate(stats.channels):
            channel_name = share.channel_name
            channel = channels.get(channel_name)
            depth = share.depth
            if channel is None:
                # Reuses the first share's numbers: most channels are on few nodes, and new numbers take
                # memory.
                channel = channels[channel_name] = ChannelSum(
                    name,
                    channel_name,
                    depth,
                    share.backend_depth,
                    share.in_flight_count,
                    share.deferred_count,
                    share.client_count,
                    share.message_count,
                    share.dead_count,
                    share.oldest_message_time,
                    share.paused,
                )
            else:
                _add_share(channel, share)
            finished: float | None = None
            grows = 0.0
            if counts:
                trend = channel.trend
                if trend is None:
                    trend = channel.trend = Trend(span_s)
                before = trend.depth, trend.messages
                finished = add_channel(trend, share, place, counts, span_s)
                if depth:
                    grows = grows_there(trend.depth - before[0], trend.messages - before[1])
            else:
                unknown.add(channel_name)
            # Most shares of a healthy cluster need no judging.
            if depth and (not share.client_count or not finished or grows):
                waiting.setdefault(channel_name, []).append(
                    ShareState(
                        node, depth, share.client_count, share.in_flight_count, finished, span_s, grows
                    )
                )
    topic.trend = own if own_known else None
    topic.channels = [channels[key] for key in sorted(channels)]
    topic.depth = topic.own_depth
    concerns = attention.of_topic(name, topic.own_depth, paused=topic.paused, has_channels=bool(channels))
    for channel in topic.channels:
        topic.depth += channel.depth
        topic.backend_depth += channel.backend_depth
        topic.in_flight += channel.in_flight_count
        topic.deferred += channel.deferred_count
        topic.consumers += channel.client_count
        if channel.channel_name in unknown:
            channel.trend = None
        of_shares = waiting.get(channel.channel_name, ()) if topic.nodes > 1 else ()
        # Channels without concerns share the empty tuple, which saves a list for each.
        channel.concerns = attention.of_channel(channel, channel.trend, of_shares, now_s) or ()
        concerns += channel.concerns
    topic.concerns = concerns or ()
    return topic


def _add_share(channel: ChannelSum, share: ChannelStats) -> None:
    channel.depth += share.depth
    channel.backend_depth += share.backend_depth
    channel.in_flight_count += share.in_flight_count
    channel.deferred_count += share.deferred_count
    channel.client_count += share.client_count
    channel.message_count += share.message_count
    channel.dead_count += share.dead_count
    channel.oldest_ns = older(channel.oldest_ns, share.oldest_message_time)
    channel.paused |= share.paused
    channel.nodes += 1


# Filter, column and direction.
Order = tuple[str, str, bool]


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
    """Every topic, and the sums over all of them. Nothing in it changes after it was made.

    Results computed for a reader are kept for the next one; the large ones are computed when it is made.
    """

    def __init__(self, topics: dict[str, TopicSum], idle: Iterable[str] = ()) -> None:
        self.topics = topics
        # Topics that are registered but that no nsqd has.
        self.idle = tuple(sorted(idle))
        self._orders: dict[Order, list[TopicSum]] = {}

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
    def concerns(self) -> list[Concern]:
        """Return the concerns of topics and channels at this moment."""
        return [concern for topic in self.topics.values() for concern in topic.concerns]

    def has_order(self, order: Order) -> bool:
        """Tell whether :meth:`ordered` has its answer already."""
        return order in self._orders

    def ordered(self, order: Order, apply: Callable[[Sequence[TopicSum]], list[TopicSum]]) -> list[TopicSum]:
        """Return all topics as *apply* filters and sorts them; the result is kept under *order*."""
        found = self._orders.get(order)
        if found is None:
            found = apply(self.rows)
            while len(self._orders) >= _MOST_ORDERS:
                self._orders.pop(next(iter(self._orders)), None)
            self._orders[order] = found
        return found

    def show(self, concerns: Iterable[Concern]) -> None:
        """Make each topic and channel show its own ones of *concerns*, and no others."""
        shown: dict[str, list[Concern]] = {}
        for concern in concerns:
            if concern.topic:
                shown.setdefault(concern.topic, []).append(concern)
        for name, topic in self.topics.items():
            if topic.concerns or name in shown:
                topic.show(shown.get(name, ()))

    def changed(self, name: str, topic: TopicSum | None, idle: Iterable[str]) -> "ClusterSum":
        """Return the cluster with topic *name* replaced by *topic*, or without it."""
        topics = dict(self.topics)
        if topic is None:
            topics.pop(name, None)
        else:
            topics[name] = topic
        return ClusterSum(topics, idle)


# Orders that are kept for the next reader: enough for a few columns and a few people's filters.
_MOST_ORDERS: Final = 8
