"""The limits and times the engine holds clients to; the daemon fills them from its options."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, counts in messages, times in nanoseconds. Defaults are NSQ's."""

    mem_queue_size: int = 10_000
    max_msg_size: int = 1 << 20
    max_body_size: int = 5 << 20
    max_rdy_count: int = 2_500
    max_channel_consumers: int = 0
    msg_timeout_ns: int = 60_000_000_000
    max_msg_timeout_ns: int = 900_000_000_000
    max_req_timeout_ns: int = 3_600_000_000_000
    heartbeat_interval_ms: int = 30_000
    max_heartbeat_interval_ms: int = 60_000
    max_output_buffer_size: int = 65_536
    output_buffer_timeout_ms: int = 250
    min_output_buffer_timeout_ms: int = 25
    max_output_buffer_timeout_ms: int = 30_000
    tls_v1: bool = False
    tls_required: bool = False
    deflate: bool = True
    max_deflate_level: int = 6
    snappy: bool = True
    auth_required: bool = False
    topology_region: str = ""
    topology_zone: str = ""
    # Idle consumers in the same zone get new messages first, then those in the same region.
    topology_aware: bool = False
