"""Turns the figures of many nodes into one view of the cluster; PURE."""

import re
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Final

from nsqadmin.figures.records import (
    ALL_NODES,
    ChannelRecord,
    ClientRecord,
    LatencyRecord,
    PercentileRecord,
    TopicRecord,
)
from nsqadmin.figures.trend import older
from nsqcore.cluster.models import ChannelStats, ClientStats, LatencyStats, NodeInfo, TopicStats

_NS_PER_S: Final = 1_000_000_000
# The longest latency: three hundred years.
_MOST_NS: Final = 2.0**63


def topic_on(producer: NodeInfo, stats: TopicStats, now_s: int) -> TopicRecord:
    """Make the record of one topic on one node."""
    return TopicRecord(
        node=producer.http_address,
        hostname=producer.hostname,
        topic_name=stats.topic_name,
        depth=stats.depth,
        memory_depth=stats.depth - stats.backend_depth,
        backend_depth=stats.backend_depth,
        message_count=stats.message_count,
        paused=stats.paused,
        latency=_latency(stats.latency),
        channels=[channel_on(producer, stats.topic_name, channel, now_s) for channel in stats.channels],
    )


def channel_on(producer: NodeInfo, topic: str, stats: ChannelStats, now_s: int) -> ChannelRecord:
    """Make the record of one channel on one node."""
    clients = [consumer_on(producer, client, now_s) for client in stats.clients]
    return ChannelRecord(
        node=producer.http_address,
        hostname=producer.hostname,
        topic_name=topic,
        channel_name=stats.channel_name,
        depth=stats.depth,
        memory_depth=stats.depth - stats.backend_depth,
        backend_depth=stats.backend_depth,
        in_flight_count=stats.in_flight_count,
        deferred_count=stats.deferred_count,
        requeue_count=stats.requeue_count,
        timeout_count=stats.timeout_count,
        message_count=stats.message_count,
        zone_local_msg_count=stats.zone_local_msg_count,
        region_local_msg_count=stats.region_local_msg_count,
        global_msg_count=stats.global_msg_count,
        client_count=stats.client_count,
        paused=stats.paused,
        oldest_ns=stats.oldest_message_time,
        dead_count=stats.dead_count,
        latency=_latency(stats.latency),
        clients=sorted(clients, key=_by_nearness),
    )


def consumer_on(producer: NodeInfo, stats: ClientStats, now_s: int) -> ClientRecord:
    """Make the record of one consumer's connection to one node."""
    return ClientRecord(
        node=producer.http_address,
        node_topology_region=producer.topology_region,
        node_topology_zone=producer.topology_zone,
        connected_ns=max(0, now_s - stats.connect_ts) * _NS_PER_S,
        stats=stats,
    )


def total_topic(topic: str, records: Iterable[TopicRecord]) -> TopicRecord:
    """Add up one topic over its nodes; the per-node records are not changed."""
    nodes = sorted(records, key=_by_node)
    return TopicRecord(
        node=ALL_NODES,
        hostname="",
        topic_name=topic,
        depth=sum(node.depth for node in nodes),
        memory_depth=sum(node.memory_depth for node in nodes),
        backend_depth=sum(node.backend_depth for node in nodes),
        message_count=sum(node.message_count for node in nodes),
        paused=any(node.paused for node in nodes),
        latency=_merge_latency([node.latency for node in nodes], topic, ""),
        nodes=nodes,
        channels=_total_channels(topic, nodes),
    )


def total_channel(topic: str, channel: str, records: Iterable[ChannelRecord]) -> ChannelRecord:
    """Add up one channel over its nodes; the per-node records are not changed."""
    nodes = sorted(records, key=_by_node)
    return ChannelRecord(
        node=ALL_NODES,
        hostname="",
        topic_name=topic,
        channel_name=channel,
        depth=sum(node.depth for node in nodes),
        memory_depth=sum(node.memory_depth for node in nodes),
        backend_depth=sum(node.backend_depth for node in nodes),
        in_flight_count=sum(node.in_flight_count for node in nodes),
        deferred_count=sum(node.deferred_count for node in nodes),
        requeue_count=sum(node.requeue_count for node in nodes),
        timeout_count=sum(node.timeout_count for node in nodes),
        message_count=sum(node.message_count for node in nodes),
        zone_local_msg_count=sum(node.zone_local_msg_count for node in nodes),
        region_local_msg_count=sum(node.region_local_msg_count for node in nodes),
        global_msg_count=sum(node.global_msg_count for node in nodes),
        client_count=sum(node.client_count for node in nodes),
        paused=any(node.paused for node in nodes),
        dead_count=sum(node.dead_count for node in nodes),
        oldest_ns=reduce(older, (node.oldest_ns for node in nodes), 0),
        latency=_merge_latency([node.latency for node in nodes], topic, channel),
        nodes=nodes,
        clients=[client for node in sorted(nodes, key=lambda node: node.node) for client in node.clients],
    )


def _total_channels(topic: str, nodes: Sequence[TopicRecord]) -> list[ChannelRecord]:
    by_channel: dict[str, list[ChannelRecord]] = {}
    for node in nodes:
        for channel in node.channels:
            by_channel.setdefault(channel.channel_name, []).append(channel)
    return [total_channel(topic, name, by_channel[name]) for name in sorted(by_channel)]


def _by_node(record: TopicRecord | ChannelRecord) -> tuple[str, str]:
    # Two nsqds on one machine share the host name; the address keeps their order stable between looks.
    return record.hostname, record.node


def _by_nearness(client: ClientRecord) -> tuple[int, str, str, str, str]:
    """Sort consumers in the node's own zone first, then its region, then the rest by place."""
    nearness = 0 if client.zone_local else 1 if client.region_local else 2
    stats = client.stats
    return nearness, stats.topology_region, stats.topology_zone, stats.hostname, stats.remote_address


def _latency(latency: LatencyStats) -> LatencyRecord:
    # A node that says that it measured less than nothing must not count more than the others.
    count = max(0, latency.count)
    percentiles = []
    for entry in latency.percentiles:
        # Of larger numbers no average can be made, nor a time be written.
        value_ns = min(max(entry.value_ns, -_MOST_NS), _MOST_NS)
        percentiles.append(PercentileRecord(entry.quantile, value_ns, value_ns, value_ns, count))
    return LatencyRecord(count, percentiles)


def _merge_latency(parts: Iterable[LatencyRecord], topic: str, channel: str) -> LatencyRecord:
    """Merge latencies: minimum and maximum are exact, the average of percentiles is weighted by count."""
    merged: dict[float, PercentileRecord] = {}
    count = 0
    for part in parts:
        count += part.count
        for entry in part.percentiles:
            known = merged.get(entry.quantile)
            if known is None:
                merged[entry.quantile] = PercentileRecord(
                    entry.quantile, entry.min_ns, entry.max_ns, entry.average_ns, entry.count
                )
                continue
            total = known.count + entry.count
            # A node that measured nothing reports zero, which is not a latency.
            if entry.count and known.count:
                known.min_ns = min(known.min_ns, entry.min_ns)
            elif entry.count:
                known.min_ns = entry.min_ns
            known.max_ns = max(known.max_ns, entry.max_ns)
            weight = entry.count / total if total else 0.0
            known.average_ns = (
                known.average_ns + (entry.average_ns - known.average_ns) * weight if total else 0
            )
            known.count = total
    return LatencyRecord(count, list(merged.values()), topic=topic, channel=channel, host=ALL_NODES)


# --- nodes -------------------------------------------------------------------

# Python makes no number of thousands of digits.
_MOST_VERSION: Final = 200
_SEMVER = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")

VersionKey = tuple[int, int, int, bool, tuple[tuple[int, int, str], ...]]


def version_key(version: str) -> VersionKey:
    """Return a key that orders semantic versions; an unreadable version counts as 0.0.0."""
    match = _SEMVER.fullmatch(version) if len(version) <= _MOST_VERSION else None
    if match is None:
        return 0, 0, 0, True, ()
    major, minor, patch, pre = match.groups()
    parts = tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in (pre.split(".") if pre else ())
    )
    # A pre-release sorts before its release, hence the flag.
    return int(major), int(minor), int(patch), pre is None, parts


def out_of_date(producers: Sequence[NodeInfo]) -> set[str]:
    """Return the ``tcp_address`` of every node whose version is older than the newest among *producers*."""
    if not producers:
        return set()
    newest = max(version_key(producer.version) for producer in producers)
    return {producer.tcp_address for producer in producers if version_key(producer.version) < newest}


def sort_producers(producers: Iterable[NodeInfo]) -> list[NodeInfo]:
    return sorted(producers, key=lambda producer: (producer.hostname, producer.http_address))
