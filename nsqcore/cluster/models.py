"""What nsqd and nsqlookupd say about themselves, as typed records read from their JSON.

Missing fields read as zero, ``null`` lists as empty, so that every NSQ release since 1.0 can be read. A field
of the wrong type raises TypeError, which the HTTP layer turns into a NodeError.
"""

from dataclasses import dataclass, replace

from nsqcore.wire import fields
from nsqcore.wire.address import join_host_port
from nsqcore.wire.fields import Json


def read_topics_by_node(record: Json) -> dict[tuple[str, int, int], frozenset[str]]:
    """Read ``/nodes`` as the topics of each nsqd (broadcast address, TCP port, HTTP port)."""
    return {
        (
            fields.text(node, "broadcast_address"),
            fields.number(node, "tcp_port"),
            fields.number(node, "http_port"),
        ): frozenset(fields.names(node, "topics"))
        for node in fields.objects(record, "producers")
    }


@dataclass(frozen=True, slots=True)
class Registration:
    """A topic as nsqlookupd lists it for one nsqd."""

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
            tcp_port=fields.number(record, "tcp_port"),
            http_port=fields.number(record, "http_port"),
            version=fields.text(record, "version"),
            topology_zone=fields.text(record, "topology_zone"),
            topology_region=fields.text(record, "topology_region"),
            remote_address=fields.text(record, "remote_address"),
            topics=tuple(sorted(topics, key=lambda registration: registration.topic)),
        )

    def listed_by(self, lookupd_address: str) -> "NodeInfo":
        """Note that *lookupd_address* lists this nsqd."""
        entry = f"{lookupd_address}/{self.remote_address or 'N/A'}"
        return replace(self, remote_addresses=(*self.remote_addresses, entry))


@dataclass(frozen=True, slots=True)
class Lookup:
    """What one nsqlookupd knows about one topic."""

    channels: tuple[str, ...]
    producers: tuple[NodeInfo, ...]

    @classmethod
    def from_json(cls, record: Json) -> "Lookup":
        producers = tuple(NodeInfo.from_json(entry) for entry in fields.objects(record, "producers"))
        return cls(fields.names(record, "channels"), producers)


@dataclass(frozen=True, slots=True)
class Percentile:
    quantile: float
    value_ns: float


@dataclass(frozen=True, slots=True)
class LatencyStats:
    """End-to-end latency of one topic or channel on one nsqd; empty when the nsqd does not measure it."""

    count: int = 0
    percentiles: tuple[Percentile, ...] = ()

    @classmethod
    def from_json(cls, record: Json) -> "LatencyStats":
        entries = record.get("e2e_processing_latency")
        if entries is None:
            return cls()
        if not isinstance(entries, dict):
            raise TypeError("e2e_processing_latency is not an object")
        percentiles = tuple(
            Percentile(float(entry.get("quantile") or 0), float(entry.get("value") or 0))
            for entry in fields.objects(entries, "percentiles")
        )
        return cls(fields.number(entries, "count"), percentiles)


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
            client_id=fields.text(record, "client_id"),
            hostname=fields.text(record, "hostname"),
            version=fields.text(record, "version"),
            remote_address=fields.text(record, "remote_address"),
            user_agent=fields.text(record, "user_agent"),
            connect_ts=fields.number(record, "connect_ts"),
            in_flight_count=fields.number(record, "in_flight_count"),
            ready_count=fields.number(record, "ready_count"),
            finish_count=fields.number(record, "finish_count"),
            requeue_count=fields.number(record, "requeue_count"),
            message_count=fields.number(record, "message_count"),
            sample_rate=fields.number(record, "sample_rate"),
            deflate=fields.flag(record, "deflate"),
            snappy=fields.flag(record, "snappy"),
            authed=fields.flag(record, "authed"),
            auth_identity=fields.text(record, "auth_identity"),
            auth_identity_url=fields.text(record, "auth_identity_url"),
            topology_zone=fields.text(record, "topology_zone"),
            topology_region=fields.text(record, "topology_region"),
            tls=fields.flag(record, "tls"),
            tls_cipher_suite=fields.text(record, "tls_cipher_suite"),
            tls_version=fields.text(record, "tls_version"),
            tls_negotiated_protocol=fields.text(record, "tls_negotiated_protocol"),
            tls_negotiated_protocol_is_mutual=fields.flag(record, "tls_negotiated_protocol_is_mutual"),
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
    latency: LatencyStats

    @classmethod
    def from_json(cls, record: Json) -> "ChannelStats":
        return cls(
            channel_name=fields.text(record, "channel_name"),
            depth=fields.number(record, "depth"),
            backend_depth=fields.number(record, "backend_depth"),
            in_flight_count=fields.number(record, "in_flight_count"),
            deferred_count=fields.number(record, "deferred_count"),
            requeue_count=fields.number(record, "requeue_count"),
            timeout_count=fields.number(record, "timeout_count"),
            message_count=fields.number(record, "message_count"),
            client_count=fields.number(record, "client_count"),
            zone_local_msg_count=fields.number(record, "zone_local_msg_count"),
            region_local_msg_count=fields.number(record, "region_local_msg_count"),
            global_msg_count=fields.number(record, "global_msg_count"),
            paused=fields.flag(record, "paused"),
            clients=tuple(ClientStats.from_json(entry) for entry in fields.objects(record, "clients")),
            latency=LatencyStats.from_json(record),
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
    latency: LatencyStats

    @classmethod
    def from_json(cls, record: Json) -> "TopicStats":
        return cls(
            topic_name=fields.text(record, "topic_name"),
            depth=fields.number(record, "depth"),
            backend_depth=fields.number(record, "backend_depth"),
            message_count=fields.number(record, "message_count"),
            message_bytes=fields.number(record, "message_bytes"),
            paused=fields.flag(record, "paused"),
            channels=tuple(ChannelStats.from_json(entry) for entry in fields.objects(record, "channels")),
            latency=LatencyStats.from_json(record),
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
            version=fields.text(record, "version"),
            health=fields.text(record, "health"),
            start_time=fields.number(record, "start_time"),
            topics=tuple(TopicStats.from_json(entry) for entry in fields.objects(record, "topics")),
        )
