"""What nsqd and nsqlookupd say about themselves, as typed records read from their JSON.

Missing fields read as zero, ``null`` lists as empty, so that every NSQ release since 1.0 can be read. A field
of the wrong type raises TypeError, which the HTTP layer turns into a NodeError.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

Json = Mapping[str, Any]


def join_host_port(host: str, port: int) -> str:
    """Return ``host:port``, with brackets round an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _text(record: Json, key: str) -> str:
    value = record.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{key} is not a string")
    return value


def _number(record: Json, key: str) -> int:
    value = record.get(key)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{key} is not a number")
    return int(value)


def _flag(record: Json, key: str) -> bool:
    value = record.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise TypeError(f"{key} is not a boolean")
    return value


def _objects(record: Json, key: str) -> list[Json]:
    value = record.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise TypeError(f"{key} is not a list of objects")
    return value


def read_names(record: Json, key: str) -> tuple[str, ...]:
    """Read a list of strings; ``null`` and absence are the empty list."""
    value = record.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError(f"{key} is not a list of strings")
    return tuple(value)


def read_topics_by_node(record: Json) -> dict[tuple[str, int, int], frozenset[str]]:
    """Read ``/nodes`` as the topics of each nsqd (broadcast address, TCP port, HTTP port)."""
    return {
        (_text(node, "broadcast_address"), _number(node, "tcp_port"), _number(node, "http_port")): frozenset(
            read_names(node, "topics")
        )
        for node in _objects(record, "producers")
    }


@dataclass(frozen=True, slots=True)
class Registration:
    """A topic as nsqlookupd lists it for one nsqd."""

    topic: str
    tombstoned: bool = False


@dataclass(frozen=True, slots=True)
class Producer:
    """One nsqd of the cluster, as nsqlookupd or its own ``/info`` describes it."""

    broadcast_address: str
    hostname: str
    tcp_port: int
    http_port: int
    version: str
    topology_zone: str = ""
    topology_region: str = ""
    remote_address: str = ""
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
    def from_json(cls, record: Json) -> "Producer":
        """Read an entry of ``/lookup`` or ``/nodes``, or the answer of nsqd's ``/info``."""
        names = read_names(record, "topics")
        tombstones = record.get("tombstones") or []
        if not isinstance(tombstones, list):
            raise TypeError("tombstones is not a list")
        topics = (
            Registration(name, tombstoned=index < len(tombstones) and bool(tombstones[index]))
            for index, name in enumerate(names)
        )
        return cls(
            broadcast_address=_text(record, "broadcast_address"),
            hostname=_text(record, "hostname"),
            tcp_port=_number(record, "tcp_port"),
            http_port=_number(record, "http_port"),
            version=_text(record, "version"),
            topology_zone=_text(record, "topology_zone"),
            topology_region=_text(record, "topology_region"),
            remote_address=_text(record, "remote_address"),
            topics=tuple(sorted(topics, key=lambda registration: registration.topic)),
        )

    def listed_by(self, lookupd_address: str) -> "Producer":
        """Note that *lookupd_address* lists this nsqd."""
        entry = f"{lookupd_address}/{self.remote_address or 'N/A'}"
        return replace(self, remote_addresses=(*self.remote_addresses, entry))


@dataclass(frozen=True, slots=True)
class Lookup:
    """What one nsqlookupd knows about one topic."""

    channels: tuple[str, ...]
    producers: tuple[Producer, ...]

    @classmethod
    def from_json(cls, record: Json) -> "Lookup":
        producers = tuple(Producer.from_json(entry) for entry in _objects(record, "producers"))
        return cls(read_names(record, "channels"), producers)


@dataclass(frozen=True, slots=True)
class Percentile:
    quantile: float
    value_ns: float


@dataclass(frozen=True, slots=True)
class Latency:
    """End-to-end latency of one topic or channel on one nsqd; empty when the nsqd does not measure it."""

    count: int = 0
    percentiles: tuple[Percentile, ...] = ()

    @classmethod
    def from_json(cls, record: Json) -> "Latency":
        entries = record.get("e2e_processing_latency")
        if entries is None:
            return cls()
        if not isinstance(entries, dict):
            raise TypeError("e2e_processing_latency is not an object")
        percentiles = tuple(
            Percentile(float(entry.get("quantile") or 0), float(entry.get("value") or 0))
            for entry in _objects(entries, "percentiles")
        )
        return cls(_number(entries, "count"), percentiles)


@dataclass(frozen=True, slots=True)
class ClientStats:
    """One consumer connection of a channel."""

    client_id: str
    hostname: str
    version: str
    remote_address: str
    user_agent: str
    connect_ts: int
    in_flight_count: int
    ready_count: int
    finish_count: int
    requeue_count: int
    message_count: int
    sample_rate: int
    deflate: bool
    snappy: bool
    authed: bool
    auth_identity: str
    auth_identity_url: str
    topology_zone: str
    topology_region: str
    tls: bool
    tls_cipher_suite: str
    tls_version: str
    tls_negotiated_protocol: str
    tls_negotiated_protocol_is_mutual: bool

    @classmethod
    def from_json(cls, record: Json) -> "ClientStats":
        return cls(
            client_id=_text(record, "client_id"),
            hostname=_text(record, "hostname"),
            version=_text(record, "version"),
            remote_address=_text(record, "remote_address"),
            user_agent=_text(record, "user_agent"),
            connect_ts=_number(record, "connect_ts"),
            in_flight_count=_number(record, "in_flight_count"),
            ready_count=_number(record, "ready_count"),
            finish_count=_number(record, "finish_count"),
            requeue_count=_number(record, "requeue_count"),
            message_count=_number(record, "message_count"),
            sample_rate=_number(record, "sample_rate"),
            deflate=_flag(record, "deflate"),
            snappy=_flag(record, "snappy"),
            authed=_flag(record, "authed"),
            auth_identity=_text(record, "auth_identity"),
            auth_identity_url=_text(record, "auth_identity_url"),
            topology_zone=_text(record, "topology_zone"),
            topology_region=_text(record, "topology_region"),
            tls=_flag(record, "tls"),
            tls_cipher_suite=_text(record, "tls_cipher_suite"),
            tls_version=_text(record, "tls_version"),
            tls_negotiated_protocol=_text(record, "tls_negotiated_protocol"),
            tls_negotiated_protocol_is_mutual=_flag(record, "tls_negotiated_protocol_is_mutual"),
        )


@dataclass(frozen=True, slots=True)
class ChannelStats:
    channel_name: str
    depth: int
    backend_depth: int
    in_flight_count: int
    deferred_count: int
    requeue_count: int
    timeout_count: int
    message_count: int
    client_count: int
    zone_local_msg_count: int
    region_local_msg_count: int
    global_msg_count: int
    paused: bool
    clients: tuple[ClientStats, ...]
    latency: Latency

    @classmethod
    def from_json(cls, record: Json) -> "ChannelStats":
        return cls(
            channel_name=_text(record, "channel_name"),
            depth=_number(record, "depth"),
            backend_depth=_number(record, "backend_depth"),
            in_flight_count=_number(record, "in_flight_count"),
            deferred_count=_number(record, "deferred_count"),
            requeue_count=_number(record, "requeue_count"),
            timeout_count=_number(record, "timeout_count"),
            message_count=_number(record, "message_count"),
            client_count=_number(record, "client_count"),
            zone_local_msg_count=_number(record, "zone_local_msg_count"),
            region_local_msg_count=_number(record, "region_local_msg_count"),
            global_msg_count=_number(record, "global_msg_count"),
            paused=_flag(record, "paused"),
            clients=tuple(ClientStats.from_json(entry) for entry in _objects(record, "clients")),
            latency=Latency.from_json(record),
        )


@dataclass(frozen=True, slots=True)
class TopicStats:
    topic_name: str
    depth: int
    backend_depth: int
    message_count: int
    message_bytes: int
    paused: bool
    channels: tuple[ChannelStats, ...]
    latency: Latency

    @classmethod
    def from_json(cls, record: Json) -> "TopicStats":
        return cls(
            topic_name=_text(record, "topic_name"),
            depth=_number(record, "depth"),
            backend_depth=_number(record, "backend_depth"),
            message_count=_number(record, "message_count"),
            message_bytes=_number(record, "message_bytes"),
            paused=_flag(record, "paused"),
            channels=tuple(ChannelStats.from_json(entry) for entry in _objects(record, "channels")),
            latency=Latency.from_json(record),
        )


@dataclass(frozen=True, slots=True)
class NodeStats:
    """The whole of one nsqd's ``/stats``."""

    version: str
    health: str
    start_time: int
    topics: tuple[TopicStats, ...]

    @classmethod
    def from_json(cls, record: Json) -> "NodeStats":
        return cls(
            version=_text(record, "version"),
            health=_text(record, "health"),
            start_time=_number(record, "start_time"),
            topics=tuple(TopicStats.from_json(entry) for entry in _objects(record, "topics")),
        )
