"""The options of nsqd, each declared once."""

import hashlib
import socket
import ssl
import zlib
from dataclasses import dataclass
from typing import Any

from nsqclient.wire.durations import HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND, Duration
from nsqcore.near_misses import address_check
from nsqcore.options.kinds import BOOL, DIAL, DIAL_LIST, DURATION, FLOAT_LIST, INT, LISTEN_LIST, STR_LIST
from nsqcore.options.options import DaemonOptions, option
from nsqcore.options.tls_kinds import DEFAULT_MIN_VERSION, TLS_REQUIRED, TLS_VERSION, TlsRequired
from nsqcore.process.addresses import split_host_port
from nsqd.build import nsqd_banner
from nsqd.engine.limits import Limits
from nsqd.log.ids import MAX_NODE_ID
from nsqd.policies.definition import MAX_REPLICAS
from nsqd.policies.quantities import size_bytes, watermark


def default_node_id() -> int:
    """The original's choice: a number between 0 and 1023 from the host name."""
    digest = hashlib.md5(socket.gethostname().encode(), usedforsecurity=False).digest()
    return zlib.crc32(digest) % (MAX_NODE_ID + 1)


def _at_least(flag: str, low: int) -> Any:
    def check(value: int) -> str | None:
        return f"--{flag} must be at least {low}, not {value}" if value < low else None

    return check


def _longer_than(flag: str, low: int, shown: str) -> Any:
    def check(value: int) -> str | None:
        return f"--{flag} must be longer than {shown}" if value <= low else None

    return check


def _busy_poll(value: int) -> str | None:
    if 0 <= value <= MILLISECOND:
        return None
    return "--busy-poll must be between 0 and 1ms: a processor is busy while it lasts"


def _node_id(value: int) -> str | None:
    return None if 0 <= value <= MAX_NODE_ID else "--node-id must be [0,1024)"


def _deflate_level(value: int) -> str | None:
    return None if 1 <= value <= 9 else "--max-deflate-level must be [1,9]"


def _request_method(value: str) -> str | None:
    return None if value in {"get", "post"} else "--auth-http-request-method must be post or get"


def _client_auth_policy(value: str) -> str | None:
    if value in {"", "require", "require-verify"}:
        return None
    return "--tls-client-auth-policy must be require or require-verify"


def _watermark(value: str) -> str | None:
    try:
        watermark(value)
    except ValueError as error:
        return f"--disk-watermark {error}"
    return None


def _replicas(value: int) -> str | None:
    return None if 0 <= value <= MAX_REPLICAS else f"--replicas must be between 0 and {MAX_REPLICAS}"


def _replicas_missing(value: str) -> str | None:
    return None if value in {"accept", "refuse"} else "--replicas-missing must be accept or refuse"


def _catch_up_rate(value: str) -> str | None:
    try:
        size_bytes(value)
    except ValueError as error:
        return f"--catch-up-rate {error}"
    return None


def _percentiles(values: tuple[float, ...]) -> str | None:
    for value in values:
        if not 0 < value <= 1:
            return f"invalid E2E processing latency percentile: {value:.15g}"
    return None


def _address(value: str) -> str | None:
    if not value:
        return None
    try:
        split_host_port(value)
    except ValueError as error:
        return f"failed to resolve --statsd-address ({value}) - {error}"
    return None


@dataclass(frozen=True, kw_only=True)
class NsqdOptions(DaemonOptions):
    log_prefix: str = option("[nsqd] ", help="log message prefix")
    worker_id: bool = option(False, key="", kind=BOOL, help="[deprecated] has no effect, use --node-id")
    node_id: int = option(
        factory=default_node_id,
        key="id",
        kind=INT,
        check=_node_id,
        help="unique part for message IDs, (int) in range [0,1024) (default is hash of hostname)",
    )

    tcp_address: str = option(
        "0.0.0.0:4150", help="address to listen on for TCP clients (<addr>:<port> or a path)"
    )
    http_address: tuple[str, ...] = option(
        ("0.0.0.0:4151",),
        kind=LISTEN_LIST,
        help="address to listen on for HTTP clients (<addr>:<port> or a path, may be given multiple times),"
        " empty for none",
    )
    https_address: str = option("0.0.0.0:4152", help="<addr>:<port> to listen on for HTTPS clients")
    broadcast_address: str = option(
        factory=socket.gethostname,
        help="address that will be registered with lookupd (defaults to the OS hostname)",
    )
    broadcast_tcp_port: int = option(
        0,
        kind=INT,
        check=_at_least("broadcast-tcp-port", 0),
        help="TCP port registered with lookupd, 0 for the real one",
    )
    broadcast_http_port: int = option(
        0,
        kind=INT,
        check=_at_least("broadcast-http-port", 0),
        help="HTTP port registered with lookupd, 0 for the real one",
    )
    lookupd_tcp_address: tuple[str, ...] = option(
        (),
        key="nsqlookupd_tcp_addresses",
        check=address_check("lookupd-tcp-address", 4160, split_host_port),
        kind=DIAL_LIST,
        help="lookupd TCP address (may be given multiple times)",
    )
    http_client_connect_timeout: Duration = option(2 * SECOND, kind=DURATION, help="timeout for HTTP connect")
    http_client_request_timeout: Duration = option(5 * SECOND, kind=DURATION, help="timeout for HTTP request")
    topology_region: str = option(
        "", help="A region represents a larger domain, made up of one or more zones"
    )
    topology_zone: str = option("", help="A zone represents a logical failure domain")

    data_path: str = option("", help="path to store disk-backed messages (default: the current directory)")
    policies_file: str = option(
        "",
        help="TOML file of policies (retention, bounds, dead letters, ...); SIGHUP reads it again",
    )
    disk_watermark: str = option(
        "",
        check=_watermark,
        help="disk space that must stay free, as '5%' or '10GB'; publishes are refused when less is free",
    )
    mem_queue_size: int = option(
        10_000,
        kind=INT,
        check=_at_least("mem-queue-size", 0),
        help="number of messages to keep in memory (per topic); older ones are read back from disk",
    )
    max_bytes_per_file: int = option(
        100 << 20,
        kind=INT,
        check=_at_least("max-bytes-per-file", 1),
        help="number of bytes per file before rolling",
    )
    sync_every: int = option(
        2500,
        kind=INT,
        check=_at_least("sync-every", 0),
        help="number of messages per fsync; 1: publishers are answered after the fsync, 0: by time only",
    )
    sync_timeout: Duration = option(
        2 * SECOND,
        kind=DURATION,
        check=_longer_than("sync-timeout", 0, "0"),
        help="duration of time per fsync",
    )
    busy_poll: Duration = option(
        50 * MICROSECOND,
        kind=DURATION,
        check=_busy_poll,
        help="how long to poll for the next request of a client that waits for each answer, before sleeping",
    )
    replicas: int = option(
        0,
        kind=INT,
        check=_replicas,
        help="number of other nsqd (replicas) that must have a message too before its publisher is answered",
    )
    replica: tuple[str, ...] = option(
        (),
        kind=DIAL_LIST,
        check=address_check("replica", 4150, split_host_port),
        help="TCP address of an nsqd that is a replica of this one (may be given multiple times);"
        " without it nsqlookupd names candidates",
    )
    replicas_missing: str = option(
        "accept",
        check=_replicas_missing,
        help="what publishers are answered while fewer than --replicas are in sync (accept or refuse)",
    )
    replica_ack_timeout: Duration = option(
        2 * SECOND,
        kind=DURATION,
        check=_longer_than("replica-ack-timeout", 0, "0"),
        help="how long to wait for the acknowledgement of a replica; a slower one counts again when it has"
        " acknowledged everything",
    )
    replica_replace_after: Duration = option(
        5 * MINUTE,
        kind=DURATION,
        check=_longer_than("replica-replace-after", 0, "0"),
        help="how long a replica may be unreachable before another one replaces it",
    )
    replication_tls: bool = option(
        False, kind=BOOL, help="use TLS to replicas, and check their certificates with --tls-root-ca-file"
    )
    cluster_secret_file: str = option(
        "",
        help="file with the secret of the cluster, at least 32 bytes; further lines are accepted too."
        " Nothing is replicated without it",
    )
    catch_up_rate: str = option(
        "50MB", check=_catch_up_rate, help="bytes per second at which older files are sent to a replica"
    )
    failover_timeout: Duration = option(
        30 * SECOND,
        kind=DURATION,
        check=_longer_than("failover-timeout", 0, "0"),
        help="how long another nsqd must be silent before its messages are delivered from the copies here",
    )
    accept_replicas: bool = option(
        True, kind=BOOL, help="be a replica for other nsqd; only with --cluster-secret-file"
    )
    queue_scan_worker_pool_max: int = option(
        4, kind=INT, help="[no effect] timeouts are kept in a heap, not scanned"
    )
    queue_scan_selection_count: int = option(
        20, kind=INT, help="[no effect] timeouts are kept in a heap, not scanned"
    )

    msg_timeout: Duration = option(
        60 * SECOND,
        kind=DURATION,
        check=_longer_than("msg-timeout", 0, "0"),
        help="time to wait before requeueing a message",
    )
    max_msg_timeout: Duration = option(
        15 * MINUTE, kind=DURATION, help="maximum duration before a message will timeout"
    )
    max_msg_size: int = option(
        1 << 20,
        kind=INT,
        check=_at_least("max-msg-size", 1),
        help="maximum size of a single message in bytes",
    )
    max_req_timeout: Duration = option(HOUR, kind=DURATION, help="maximum requeuing timeout for a message")
    max_body_size: int = option(
        5 << 20, kind=INT, check=_at_least("max-body-size", 9), help="maximum size of a single command body"
    )

    max_heartbeat_interval: Duration = option(
        60 * SECOND,
        kind=DURATION,
        help="maximum client configurable duration of time between client heartbeats",
    )
    max_rdy_count: int = option(
        2500, kind=INT, check=_at_least("max-rdy-count", 1), help="maximum RDY count for a client"
    )
    max_output_buffer_size: int = option(
        64 << 10, kind=INT, help="maximum client configurable size (in bytes) for a client output buffer"
    )
    max_output_buffer_timeout: Duration = option(
        30 * SECOND, kind=DURATION, help="maximum client configurable duration between flushing to a client"
    )
    min_output_buffer_timeout: Duration = option(
        25 * MILLISECOND,
        kind=DURATION,
        help="minimum client configurable duration between flushing to a client",
    )
    output_buffer_timeout: Duration = option(
        250 * MILLISECOND,
        kind=DURATION,
        help="default duration between flushing to a client (data is sent without delay)",
    )
    max_channel_consumers: int = option(
        0,
        kind=INT,
        check=_at_least("max-channel-consumers", 0),
        help="maximum channel consumers, 0 for no limit",
    )

    statsd_address: str = option(
        "",
        kind=DIAL,
        check=_address,
        help="UDP <addr>:<port> of a statsd daemon for pushing stats",
    )
    statsd_interval: Duration = option(
        60 * SECOND,
        kind=DURATION,
        help="duration between pushing to statsd",
    )
    statsd_mem_stats: bool = option(True, kind=BOOL, help="toggle sending memory and GC stats to statsd")
    statsd_prefix: str = option(
        "nsq.%s", help="prefix used for keys sent to statsd (%s for host replacement)"
    )
    statsd_udp_packet_size: int = option(508, kind=INT, help="the size in bytes of statsd UDP packets")
    statsd_exclude_ephemeral: bool = option(False, kind=BOOL, help="skip ephemeral topics and channels")

    e2e_processing_latency_percentile: tuple[float, ...] = option(
        (),
        key="e2e_processing_latency_percentiles",
        kind=FLOAT_LIST,
        check=_percentiles,
        help="message processing time percentiles, as float (0, 1.0], to track (may be comma separated)",
    )
    e2e_processing_latency_window_time: Duration = option(
        10 * MINUTE,
        kind=DURATION,
        help="calculate end to end latency quantiles for this duration of time",
    )

    auth_http_address: tuple[str, ...] = option(
        (),
        key="auth_http_addresses",
        kind=DIAL_LIST,
        help="<addr>:<port> or a full url to query auth server",
    )
    auth_http_request_method: str = option(
        "get", check=_request_method, help="HTTP method to use for auth server requests"
    )
    http_auth: bool = option(
        False,
        kind=BOOL,
        help="require the AUTH secret for publishing, reading messages and administering over HTTP,"
        " as 'Authorization: Bearer SECRET'",
    )
    tls_cert: str = option("", help="path to certificate file")
    tls_key: str = option("", help="path to key file")
    tls_client_auth_policy: str = option(
        "",
        check=_client_auth_policy,
        help="client certificate auth policy ('require' or 'require-verify': both verify, and require TLS)",
    )
    tls_root_ca_file: str = option("", help="path to certificate authority file")
    tls_required: TlsRequired = option(
        TlsRequired.NO,
        kind=TLS_REQUIRED,
        help="require TLS for client connections (true, false, tcp-https)",
    )
    tls_min_version: ssl.TLSVersion = option(
        DEFAULT_MIN_VERSION,
        kind=TLS_VERSION,
        help="minimum TLS version acceptable ('tls1.0', 'tls1.1', 'tls1.2', or 'tls1.3')",
    )
    deflate: bool = option(True, kind=BOOL, help="enable deflate feature negotiation (client compression)")
    max_deflate_level: int = option(
        6, kind=INT, check=_deflate_level, help="max deflate compression level a client can negotiate"
    )
    snappy: bool = option(True, kind=BOOL, help="enable snappy feature negotiation (client compression)")
    enable_experiment: tuple[str, ...] = option(
        (),
        kind=STR_LIST,
        help="enable experimental feature (may be given multiple times): topology-aware-consumption",
    )

    def __post_init__(self) -> None:
        # Otherwise clients could avoid the certificate by connecting without TLS.
        if self.tls_client_auth_policy and self.tls_required is TlsRequired.NO:
            object.__setattr__(self, "tls_required", TlsRequired.TCP_AND_HTTP)

    def problem(self) -> str | None:
        if self.tls_required is not TlsRequired.NO and not self.has_certificate:
            return "cannot require TLS client connections without TLS key and cert"
        # An option of a feature that is off may have any value: the original does not check it either.
        if self.statsd_address and self.statsd_interval <= SECOND:
            return "--statsd-interval must be longer than 1s"
        if self.e2e_processing_latency_percentile and self.e2e_processing_latency_window_time <= 0:
            return "--e2e-processing-latency-window-time must be longer than 0"
        if self.tls_client_auth_policy == "require" and not self.tls_root_ca_file:
            return (
                "--tls-client-auth-policy=require needs --tls-root-ca-file: certificates of clients are"
                " verified, as with require-verify"
            )
        if self.http_auth and not self.auth_http_address:
            return "--http-auth needs --auth-http-address: only its servers know the secrets"
        if self.replicas and not self.cluster_secret_file:
            return f"--replicas={self.replicas} needs --cluster-secret-file: only members are replicas"
        if self.replica and self.replicas > len(self.replica):
            return f"--replicas={self.replicas} needs as many --replica, not {len(self.replica)}"
        if self.replicas and not (self.replica or self.lookupd_tcp_address):
            return f"--replicas={self.replicas} needs --replica, or an nsqlookupd that names candidates"
        return None

    @property
    def has_certificate(self) -> bool:
        return bool(self.tls_cert or self.tls_key)

    @staticmethod
    def banner(_program: str) -> str:
        return nsqd_banner()

    def limits(self) -> Limits:
        """The limits that the engine enforces on clients."""
        return Limits(
            mem_queue_size=self.mem_queue_size,
            max_msg_size=self.max_msg_size,
            max_body_size=self.max_body_size,
            max_rdy_count=self.max_rdy_count,
            max_channel_consumers=self.max_channel_consumers,
            msg_timeout_ns=self.msg_timeout,
            max_msg_timeout_ns=self.max_msg_timeout,
            max_req_timeout_ns=self.max_req_timeout,
            max_heartbeat_interval_ms=self.max_heartbeat_interval // MILLISECOND,
            max_output_buffer_size=self.max_output_buffer_size,
            output_buffer_timeout_ms=self.output_buffer_timeout // MILLISECOND,
            min_output_buffer_timeout_ms=self.min_output_buffer_timeout // MILLISECOND,
            max_output_buffer_timeout_ms=self.max_output_buffer_timeout // MILLISECOND,
            tls_v1=self.has_certificate,
            tls_required=self.tls_required is not TlsRequired.NO,
            deflate=self.deflate,
            max_deflate_level=self.max_deflate_level,
            snappy=self.snappy,
            auth_required=bool(self.auth_http_address),
            topology_region=self.topology_region,
            topology_zone=self.topology_zone,
            topology_aware="topology-aware-consumption" in self.enable_experiment,
        )
