"""The records of topics, channels and consumers in nsqadmin's JSON API; PURE.

One record type serves a node's figures and the total over nodes, as in NSQ: a total has ``node`` "*" and
lists the per-node records from which it was made.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from nsqcore.cluster.models import ClientStats

ALL_NODES: Final = "*"

JsonObject = dict[str, Any]


@dataclass(slots=True)
class PercentileRecord:
    quantile: float
    min_ns: float
    max_ns: float
    average_ns: float
    count: int


@dataclass(slots=True)
class LatencyRecord:
    """End-to-end latency; percentiles of several nodes can only be averaged, so a total is an estimate."""

    count: int = 0
    percentiles: list[PercentileRecord] = field(default_factory=list)
    topic: str = ""
    channel: str = ""
    host: str = ""

    def to_json(self) -> JsonObject:
        # A node's own entry has a value; a total has none.
        with_value = self.host != ALL_NODES
        return {
            "count": self.count,
            "percentiles": [_percentile_json(entry, with_value=with_value) for entry in self.percentiles],
            "topic": self.topic,
            "channel": self.channel,
            "host": self.host,
        }


def _percentile_json(entry: PercentileRecord, *, with_value: bool) -> JsonObject:
    shown: JsonObject = {
        "average": _whole(entry.average_ns),
        "count": entry.count,
        "max": _whole(entry.max_ns),
        "min": _whole(entry.min_ns),
        "quantile": entry.quantile,
    }
    if with_value:
        shown["value"] = _whole(entry.average_ns)
    return shown


@dataclass(slots=True)
class ClientRecord:
    node: str
    node_topology_region: str
    node_topology_zone: str
    connected_ns: int
    stats: ClientStats

    @property
    def zone_local(self) -> bool:
        return (
            self.region_local
            and bool(self.node_topology_zone)
            and (self.stats.topology_zone == self.node_topology_zone)
        )

    @property
    def region_local(self) -> bool:
        return bool(self.node_topology_region) and self.stats.topology_region == self.node_topology_region

    def to_json(self) -> JsonObject:
        stats = self.stats
        return {
            "node": self.node,
            "remote_address": stats.remote_address,
            "version": stats.version,
            "client_id": stats.client_id,
            "hostname": stats.hostname,
            "user_agent": stats.user_agent,
            "connect_ts": stats.connect_ts,
            "connected": self.connected_ns,
            "in_flight_count": stats.in_flight_count,
            "ready_count": stats.ready_count,
            "finish_count": stats.finish_count,
            "requeue_count": stats.requeue_count,
            "message_count": stats.message_count,
            "sample_rate": stats.sample_rate,
            "deflate": stats.deflate,
            "snappy": stats.snappy,
            "authed": stats.authed,
            "auth_identity": stats.auth_identity,
            "auth_identity_url": stats.auth_identity_url,
            **_present("node_topology_region", self.node_topology_region),
            **_present("node_topology_zone", self.node_topology_zone),
            **_present("topology_region", stats.topology_region),
            **_present("topology_zone", stats.topology_zone),
            "tls": stats.tls,
            "tls_cipher_suite": stats.tls_cipher_suite,
            "tls_version": stats.tls_version,
            "tls_negotiated_protocol": stats.tls_negotiated_protocol,
            "tls_negotiated_protocol_is_mutual": stats.tls_negotiated_protocol_is_mutual,
        }


@dataclass(slots=True)
class ChannelRecord:
    node: str
    hostname: str
    topic_name: str
    channel_name: str
    depth: int = 0
    memory_depth: int = 0
    backend_depth: int = 0
    in_flight_count: int = 0
    deferred_count: int = 0
    requeue_count: int = 0
    timeout_count: int = 0
    message_count: int = 0
    zone_local_msg_count: int = 0
    region_local_msg_count: int = 0
    global_msg_count: int = 0
    client_count: int = 0
    paused: bool = False
    # Shown on pages only; the API has the original's keys.
    oldest_ns: int = 0
    dead_count: int = 0
    latency: LatencyRecord = field(default_factory=LatencyRecord)
    nodes: list["ChannelRecord"] = field(default_factory=list)
    clients: list[ClientRecord] = field(default_factory=list)

    @property
    def delivery_msg_count(self) -> int:
        return self.zone_local_msg_count + self.region_local_msg_count + self.global_msg_count

    @property
    def owed(self) -> int:
        """Messages that consumers have not finished yet: waiting, in flight or deferred."""
        return self.depth + self.in_flight_count + self.deferred_count

    def to_json(self) -> JsonObject:
        return {
            "node": self.node,
            "hostname": self.hostname,
            "topic_name": self.topic_name,
            "channel_name": self.channel_name,
            "depth": self.depth,
            "memory_depth": self.memory_depth,
            "backend_depth": self.backend_depth,
            "in_flight_count": self.in_flight_count,
            "deferred_count": self.deferred_count,
            "requeue_count": self.requeue_count,
            "timeout_count": self.timeout_count,
            "message_count": self.message_count,
            **_present("delivery_msg_count", self.delivery_msg_count),
            **_present("zone_local_msg_count", self.zone_local_msg_count),
            **_present("region_local_msg_count", self.region_local_msg_count),
            **_present("global_msg_count", self.global_msg_count),
            "client_count": self.client_count,
            "nodes": [node.to_json() for node in self.nodes],
            "clients": [client.to_json() for client in self.clients],
            "paused": self.paused,
            "e2e_processing_latency": self.latency.to_json(),
        }


@dataclass(slots=True)
class TopicRecord:
    node: str
    hostname: str
    topic_name: str
    depth: int = 0
    memory_depth: int = 0
    backend_depth: int = 0
    message_count: int = 0
    paused: bool = False
    latency: LatencyRecord = field(default_factory=LatencyRecord)
    nodes: list["TopicRecord"] = field(default_factory=list)
    channels: list[ChannelRecord] = field(default_factory=list)

    @property
    def client_count(self) -> int:
        return sum(channel.client_count for channel in self.channels)

    def to_json(self) -> JsonObject:
        return {
            "node": self.node,
            "hostname": self.hostname,
            "topic_name": self.topic_name,
            "depth": self.depth,
            "memory_depth": self.memory_depth,
            "backend_depth": self.backend_depth,
            "message_count": self.message_count,
            # Deliveries are counted on channels only, but the key is part of the original's record.
            "delivery_msg_count": 0,
            "nodes": [node.to_json() for node in self.nodes],
            "channels": [channel.to_json() for channel in self.channels],
            "paused": self.paused,
            "e2e_processing_latency": self.latency.to_json(),
        }


def _present(key: str, value: str | int) -> JsonObject:
    """Leave a key out if its value is empty or zero."""
    return {key: value} if value else {}


def _whole(value: float) -> float:
    """Write whole numbers without a fraction, as in NSQ's JSON."""
    # An int is a float to a type checker, but has no is_integer() before Python 3.12.
    return int(value) if float(value).is_integer() else value
