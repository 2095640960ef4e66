"""A topic and its channels added up over nodes; PURE.

The sums of all topics are made every few seconds. :func:`over_nodes` makes those of one topic with its parts
on each node, their latencies and consumers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from nsqadmin.stats.problems import (
    UNDER_REPLICATED,
    Level,
    Problem,
    ShareState,
    grows_there,
    problems_of_channel,
    problems_of_topic,
    worst_first,
    worst_level,
)
from nsqadmin.stats.records import ALL_NODES, ClientRecord, LatencyRecord, by_nearness, latency_of, merged
from nsqadmin.stats.trend import (
    Counted,
    Trend,
    add_channel,
    counts_then,
    empties_in,
    older,
    topic_trend,
)
from nsqcore.cluster.models import ChannelStats, NodeInfo, TopicStats

# One node's share of a topic: its statistics, the samples to compare them with, their time, the node.
Share = tuple[TopicStats, Sequence[Counted], int, str]


class ChannelSum(msgspec.Struct, gc=False):
    """A channel over all nodes, or its part on one node. There are a hundred thousand of them."""

    topic_name: str
    channel_name: str
    depth: int = 0
    backend_depth: int = 0
    in_flight_count: int = 0
    deferred_count: int = 0
    client_count: int = 0
    message_count: int = 0
    requeue_count: int = 0
    timeout_count: int = 0
    dead_count: int = 0
    zone_local_msg_count: int = 0
    region_local_msg_count: int = 0
    global_msg_count: int = 0
    # When the oldest waiting message was published: 0 if there is none, -1 if not known.
    oldest_ns: int = 0
    paused: bool = False
    # On how many nodes it is.
    nodes: int = 1
    trend: Trend | None = None
    problems: Sequence[Problem] = ()
    # Only when a page shows this channel: its parts on each node, latency and consumers.
    node: str = ALL_NODES
    hostname: str = ""
    latency: LatencyRecord | None = None
    parts: Sequence["ChannelSum"] = ()
    clients: Sequence[ClientRecord] = ()

    @property
    def name(self) -> str:
        return self.channel_name

    @property
    def level(self) -> Level | None:
        return worst_level(self.problems)

    @property
    def states(self) -> list[str]:
        return [problem.kind for problem in self.problems]

    @property
    def memory_depth(self) -> int:
        return self.depth - self.backend_depth

    @property
    def unfinished(self) -> int:
        """The backlog: messages that are queued, in flight or deferred."""
        return self.depth + self.in_flight_count + self.deferred_count

    @property
    def empties_s(self) -> float | None:
        """Seconds until it is empty at the present rate; None if it is empty or gets no shorter."""
        return empties_in(self.depth, self.trend) if self.depth else None

    @property
    def delivery_msg_count(self) -> int:
        return self.zone_local_msg_count + self.region_local_msg_count + self.global_msg_count

    @property
    def delivery(self) -> tuple[float, float, float] | None:
        """Percent of messages delivered within the zone, within the region, and beyond; None if unknown."""
        total = self.delivery_msg_count
        if not total:
            return None
        zone, region = self.zone_local_msg_count, self.region_local_msg_count
        return 100 * zone / total, 100 * region / total, 100 * (total - zone - region) / total


@dataclass(slots=True)
class TopicSum:
    """A topic over all nodes, or its part on one node; numbers include the channels unless named ``own_``."""

    name: str
    is_idle: bool = False
    nodes: int = 0
    own_depth: int = 0
    own_backend_depth: int = 0
    depth: int = 0
    backend_depth: int = 0
    in_flight: int = 0
    deferred: int = 0
    consumers: int = 0
    message_count: int = 0
    paused: bool = False
    # On how many nodes it has fewer replicas in sync than wanted. The problem is reported for these nodes.
    under_replicated: int = 0
    trend: Trend | None = None
    channels: list[ChannelSum] = field(default_factory=list)
    problems: Sequence[Problem] = ()
    # Only when a page shows this topic: its parts on each node, and latency.
    node: str = ALL_NODES
    hostname: str = ""
    latency: LatencyRecord | None = None
    parts: Sequence["TopicSum"] = ()
    # Of a part: how many of the wanted replicas are in sync; empty if none are wanted.
    replicas: str = ""

    @property
    def memory_depth(self) -> int:
        return self.depth - self.backend_depth

    @property
    def own_memory_depth(self) -> int:
        return self.own_depth - self.own_backend_depth

    @property
    def level(self) -> Level | None:
        return Level.PROBLEM if self.under_replicated else worst_level(self.problems)

    @property
    def states(self) -> list[str]:
        own = ["inactive"] * self.is_idle + [UNDER_REPLICATED] * bool(self.under_replicated)
        return [problem.kind for problem in self.badges] + own

    @property
    def channel_names(self) -> list[str]:
        return [channel.channel_name for channel in self.channels]

    @property
    def names(self) -> list[str]:
        """The names by which a filter finds it."""
        return [self.name, *self.channel_names]

    def channel(self, name: str) -> ChannelSum | None:
        return next((one for one in self.channels if one.channel_name == name), None)

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

    def show(self, problems: Sequence[Problem]) -> None:
        """Assign *problems* to the topic and its channels."""
        self.problems = problems
        for channel in self.channels:
            channel.problems = [one for one in problems if one.channel == channel.channel_name] or ()

    @property
    def badges(self) -> list[Problem]:
        """The worst problem for each badge."""
        kinds: dict[str, Problem] = {}
        for problem in worst_first(self.problems):
            kinds.setdefault(problem.kind, problem)
        return list(kinds.values())

    def to_json(self) -> dict[str, Any]:
        """Return its row in the list of topics."""
        return {
            "topic_name": self.name,
            "inactive": self.is_idle,
            "state": [problem.kind for problem in self.badges],
            "messages_per_second": self.trend.messages if self.trend else None,
            "depth": self.depth,
            "memory_depth": self.memory_depth,
            "backend_depth": self.backend_depth,
            "in_flight_count": self.in_flight,
            "deferred_count": self.deferred,
            "client_count": self.consumers,
            "oldest_message_time": self.oldest_ns,
            "message_count": self.message_count,
            "channels": self.channel_names,
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
    for stats, samples, at_ns, node in shares:
        topic.nodes += 1
        topic.own_depth += stats.depth
        topic.own_backend_depth += stats.backend_depth
        topic.backend_depth += stats.backend_depth
        topic.message_count += stats.message_count
        topic.paused |= stats.paused
        if stats.replicas_in_sync < stats.replicas_wanted:
            topic.under_replicated += 1
        then = counts_then(stats, samples, at_ns)
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
                    share.requeue_count,
                    share.timeout_count,
                    share.dead_count,
                    share.zone_local_msg_count,
                    share.region_local_msg_count,
                    share.global_msg_count,
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
            # Most shares of a healthy cluster need no evaluation.
            if depth and (not share.client_count or not finished or grows):
                waiting.setdefault(channel_name, []).append(
                    ShareState(
                        node, depth, share.client_count, share.in_flight_count, finished, span_s, grows
                    )
                )
    topic.trend = own if own_known else None
    topic.channels = [channels[key] for key in sorted(channels)]
    topic.depth = topic.own_depth
    problems = problems_of_topic(name, topic.own_depth, paused=topic.paused, has_channels=bool(channels))
    for channel in topic.channels:
        topic.depth += channel.depth
        topic.backend_depth += channel.backend_depth
        topic.in_flight += channel.in_flight_count
        topic.deferred += channel.deferred_count
        topic.consumers += channel.client_count
        if channel.channel_name in unknown:
            channel.trend = None
        of_shares = waiting.get(channel.channel_name, ()) if topic.nodes > 1 else ()
        # Channels without problems share the empty tuple, which saves a list for each.
        channel.problems = problems_of_channel(channel, channel.trend, of_shares, now_s) or ()
        problems += channel.problems
    topic.problems = problems or ()
    return topic


def _add_share(channel: ChannelSum, share: ChannelStats) -> None:
    channel.depth += share.depth
    channel.backend_depth += share.backend_depth
    channel.in_flight_count += share.in_flight_count
    channel.deferred_count += share.deferred_count
    channel.client_count += share.client_count
    channel.message_count += share.message_count
    channel.requeue_count += share.requeue_count
    channel.timeout_count += share.timeout_count
    channel.dead_count += share.dead_count
    channel.zone_local_msg_count += share.zone_local_msg_count
    channel.region_local_msg_count += share.region_local_msg_count
    channel.global_msg_count += share.global_msg_count
    channel.oldest_ns = older(channel.oldest_ns, share.oldest_message_time)
    channel.paused |= share.paused
    channel.nodes += 1


def on_node(producer: NodeInfo, share: Share, now_s: float) -> TopicSum:
    """Return the part of a topic on one node, with latencies and consumers. A part has no problems."""
    stats = share[0]
    part = add_up(stats.topic_name, [share])
    part.show(())
    part.node, part.hostname = producer.http_address, producer.hostname
    part.latency = latency_of(stats.latency)
    if stats.replicas_wanted:
        part.replicas = f"{stats.replicas_in_sync} of {stats.replicas_wanted}"
    by_name = {one.channel_name: one for one in stats.channels}
    for channel in part.channels:
        one = by_name[channel.channel_name]
        channel.node, channel.hostname = part.node, part.hostname
        channel.latency = latency_of(one.latency)
        clients = [ClientRecord.on(producer, client, now_s) for client in one.clients]
        channel.clients = sorted(clients, key=by_nearness)
    return part


def over_nodes(name: str, parts: Iterable[TopicSum], shares: Iterable[Share], now_s: float = 0.0) -> TopicSum:
    """Add up one topic over its nodes; *parts* are those of :func:`on_node`, and do not change."""
    total = add_up(name, shares, now_s)
    # Two nsqds on one machine share the host name; the address keeps their order stable between polls.
    total.parts = sorted(parts, key=lambda part: (part.hostname, part.node))
    total.latency = merged((part.latency for part in total.parts), name, "")
    for channel in total.channels:
        found = [one for part in total.parts if (one := part.channel(channel.channel_name)) is not None]
        channel.parts = found
        channel.latency = merged((one.latency for one in found), name, channel.channel_name)
        by_node = sorted(found, key=lambda one: one.node)
        channel.clients = [client for one in by_node for client in one.clients]
    return total
