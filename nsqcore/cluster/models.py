"""Typed records of the JSON in which nsqd and nsqlookupd describe themselves.

Missing fields read as zero, ``null`` lists as empty, so that every NSQ release since 1.0 can be read. A field
of the wrong type, or a number too large for any nsqd, raises ValueError or TypeError, which the HTTP layer
turns into a NodeError.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import msgspec

from nsqclient.wire.address import join_host_port
from nsqcore import fields
from nsqcore.cluster.numbers import Int64, int64
from nsqcore.fields import Json


def read_topics_by_node(record: Json) -> dict[tuple[str, int, int], frozenset[str]]:
    """Read ``/nodes`` as the topics of each nsqd (broadcast address, TCP port, HTTP port)."""
    return {
        (
            fields.text(node, "broadcast_address"),
            _port(node, "tcp_port"),
            _port(node, "http_port"),
        ): frozenset(fields.names(node, "topics"))
        for node in fields.objects(record, "producers")
    }


def _port(record: Json, key: str) -> int:
    """Read a port, which may be unusable: nsqlookupd passes on an nsqd's own description."""
    return int64(fields.number(record, key))


class Registration(msgspec.Struct, frozen=True, gc=False):
    """A topic as nsqlookupd lists it for one nsqd. There are as many as topics on all nodes."""

    topic: str
    tombstoned: bool = False


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One nsqd of the cluster, as nsqlookupd or its own ``/info`` describes it."""

    broadcast_address: str
    hostname: str
    tcp_port: int
    http_port: int
    version: str
    topology_zone: str = ""
    topology_region: str = ""
    remote_address: str = ""
    # The identity of its data path, and whether it accepts replicas of other logs; the original has neither.
    identity: str = ""
    accepts_replicas: bool = False
    # One "lookupd/peer" entry per nsqlookupd that lists this nsqd.
    remote_addresses: tuple[str, ...] = ()
    topics: tuple[Registration, ...] = ()

    @property
    def http_address(self) -> str:
        return join_host_port(self.broadcast_address, self.http_port)

    @property
    def tcp_address(self) -> str:
        return join_host_port(self.broadcast_address, self.tcp_port)

    @classmethod
    def from_json(cls, record: Json) -> "NodeInfo":
        """Read an entry of ``/lookup`` or ``/nodes``, or the answer of nsqd's ``/info``."""
        names = fields.names(record, "topics")
        tombstones = record.get("tombstones") or []
        if not isinstance(tombstones, list):
            raise TypeError("tombstones is not a list")
        topics = (
            Registration(name, tombstoned=index < len(tombstones) and bool(tombstones[index]))
            for index, name in enumerate(names)
        )
        return cls(
            broadcast_address=fields.text(record, "broadcast_address"),
            hostname=fields.text(record, "hostname"),
            tcp_port=_port(record, "tcp_port"),
            http_port=_port(record, "http_port"),
            version=fields.text(record, "version"),
            topology_zone=fields.text(record, "topology_zone"),
            topology_region=fields.text(record, "topology_region"),
            remote_address=fields.text(record, "remote_address"),
            identity=fields.text(record, "identity"),
            accepts_replicas=record.get("accepts_replicas") is True,
            topics=tuple(sorted(topics, key=lambda registration: registration.topic)),
        )

    def listed_by(self, lookupd_address: str) -> "NodeInfo":
        """Return a copy that notes that *lookupd_address* lists this nsqd."""
        entry = f"{lookupd_address}/{self.remote_address or 'N/A'}"
        return replace(self, remote_addresses=(*self.remote_addresses, entry))


def read_nodes(record: Json) -> tuple[NodeInfo, ...]:
    """Read ``/lookup/nodes``: nsqds without their topics."""
    return tuple(NodeInfo.from_json(entry) for entry in fields.objects(record, "nodes"))


@dataclass(frozen=True, slots=True)
class Lookup:
    """What one nsqlookupd knows about one topic."""

    channels: tuple[str, ...]
    producers: tuple[NodeInfo, ...]

    @classmethod
    def from_json(cls, record: Json) -> "Lookup":
        producers = tuple(NodeInfo.from_json(entry) for entry in fields.objects(record, "producers"))
        return cls(fields.names(record, "channels"), producers)


class Stats(msgspec.Struct, frozen=True, gc=False):
    """A part of ``/stats``. A cluster has a hundred thousand of them, so they are parsed by compiled code.

    References between them only go downwards, so the garbage collector need not track them.
    """

    @classmethod
    def from_json(cls, record: Json) -> Self:
        return msgspec.convert(record, cls)


class Percentile(Stats, frozen=True, gc=False, rename={"value_ns": "value"}):
    quantile: float = 0.0
    value_ns: float = 0.0


class LatencyStats(Stats, frozen=True, gc=False, rename={"listed_percentiles": "percentiles"}):
    """End-to-end latency of one topic or channel on one nsqd; empty when the nsqd does not measure it."""

    count: Int64 = 0
    listed_percentiles: tuple[Percentile, ...] | None = ()

    @property
    def percentiles(self) -> tuple[Percentile, ...]:
        return self.listed_percentiles or ()


NO_LATENCY = LatencyStats()


class ClientStats(Stats, frozen=True, gc=False):
    """One consumer connection of a channel."""

    client_id: str = ""
    hostname: str = ""
    version: str = ""
    remote_address: str = ""
    user_agent: str = ""
    connect_ts: Int64 = 0
    in_flight_count: Int64 = 0
    ready_count: Int64 = 0
    finish_count: Int64 = 0
    requeue_count: Int64 = 0
    message_count: Int64 = 0
    sample_rate: Int64 = 0
    deflate: bool = False
    snappy: bool = False
    authed: bool = False
    auth_identity: str = ""
    auth_identity_url: str = ""
    topology_zone: str = ""
    topology_region: str = ""
    tls: bool = False
    tls_cipher_suite: str = ""
    tls_version: str = ""
    tls_negotiated_protocol: str = ""
    tls_negotiated_protocol_is_mutual: bool = False

    @property
    def name(self) -> str:
        """Its own name, else its address."""
        return self.client_id or self.hostname or self.remote_address


class ChannelStats(
    Stats,
    frozen=True,
    gc=False,
    rename={"listed_clients": "clients", "listed_latency": "e2e_processing_latency"},
):
    channel_name: str = ""
    depth: Int64 = 0
    backend_depth: Int64 = 0
    in_flight_count: Int64 = 0
    deferred_count: Int64 = 0
    requeue_count: Int64 = 0
    timeout_count: Int64 = 0
    # Dead letters; NSQ's own nsqd has none.
    dead_count: Int64 = 0
    message_count: Int64 = 0
    client_count: Int64 = 0
    zone_local_msg_count: Int64 = 0
    region_local_msg_count: Int64 = 0
    global_msg_count: Int64 = 0
    paused: bool = False
    # When the oldest pending message was published, in ns since 1970; 0 means none, -1 means unknown.
    oldest_message_time: Int64 = -1
    listed_clients: tuple[ClientStats, ...] | None = ()
    listed_latency: LatencyStats | None = None

    @property
    def clients(self) -> tuple[ClientStats, ...]:
        return self.listed_clients or ()

    @property
    def latency(self) -> LatencyStats:
        return self.listed_latency or NO_LATENCY

    @property
    def unfinished(self) -> int:
        """The backlog: all messages that consumers have not finished, in any state."""
        return self.depth + self.in_flight_count + self.deferred_count


class TopicStats(
    Stats,
    frozen=True,
    gc=False,
    rename={"listed_channels": "channels", "listed_latency": "e2e_processing_latency"},
):
    topic_name: str = ""
    depth: Int64 = 0
    backend_depth: Int64 = 0
    message_count: Int64 = 0
    message_bytes: Int64 = 0
    paused: bool = False
    # Replicas that are in sync for this topic, and how many are wanted; 0 where none are wanted.
    replicas_in_sync: Int64 = 0
    replicas_wanted: Int64 = 0
    listed_channels: tuple[ChannelStats, ...] | None = ()
    listed_latency: LatencyStats | None = None

    @property
    def channels(self) -> tuple[ChannelStats, ...]:
        return self.listed_channels or ()

    @property
    def latency(self) -> LatencyStats:
        return self.listed_latency or NO_LATENCY


class DiskStats(Stats, frozen=True, gc=False):
    """The disk of an nsqd; -1 means unknown."""

    free_bytes: Int64 = -1
    total_bytes: Int64 = -1
    fsync_p99_ns: Int64 = -1


class PromotedCopy(Stats, frozen=True, gc=False):
    """A promoted copy: this node delivers the messages of the log of another node, its origin.

    ``pending`` is 0 when it has delivered all of them.
    """

    identity: str = ""
    pending: Int64 = 0


class NodeStats(Stats, frozen=True, gc=False, rename={"listed_topics": "topics"}):
    """All of one nsqd's ``/stats``."""

    version: str = ""
    health: str = ""
    start_time: Int64 = 0
    listed_topics: tuple[TopicStats, ...] | None = ()
    disk: DiskStats | None = None
    # How many topics have fewer replicas in sync than are wanted.
    under_replicated: Int64 = 0
    promoted: tuple[PromotedCopy, ...] = ()

    @property
    def topics(self) -> tuple[TopicStats, ...]:
        return self.listed_topics or ()


_decode_stats = msgspec.json.Decoder(NodeStats).decode


def read_stats(body: bytes) -> NodeStats:
    """Read the answer of ``/stats``; a ``null`` field counts as missing."""
    try:
        return _decode_stats(body)
    except msgspec.ValidationError:
        # Slow, but rarely needed.
        return msgspec.convert(_without_nulls(msgspec.json.decode(body)), NodeStats)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class NodePolicies:
    """The policies of one nsqd and, if a topic was named, those in force for it."""

    digest: str
    policies: tuple[Mapping[str, Any], ...]
    in_force: Mapping[str, Any] | None = None

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> Self:
        policies = answer["policies"]
        if not isinstance(policies, list) or not all(isinstance(one, Mapping) for one in policies):
            raise TypeError("policies are no list of objects")
        in_force = answer.get("in_force")
        if in_force is not None and not isinstance(in_force, Mapping):
            raise TypeError("in_force is no object")
        return cls(str(answer["digest"]), tuple(policies), in_force)
