"""The settings of a client under the names NSQ's own client library gives them, checked when built."""

import socket
from dataclasses import dataclass, field
from typing import Any, Final

from nsqcore.version import NSQ_VERSION

MINUTE: Final = 60.0
HOUR: Final = 60 * MINUTE

# option -> smallest and largest value allowed
_RANGES: Final[dict[str, tuple[float, float]]] = {
    "read_timeout": (0.1, 5 * MINUTE),
    "lookupd_poll_interval": (0.01, 5 * MINUTE),
    "lookupd_poll_jitter": (0, 1),
    "max_requeue_delay": (0, HOUR),
    "default_requeue_delay": (0, HOUR),
    "max_backoff_duration": (0, HOUR),
    "backoff_multiplier": (0, HOUR),
    "max_attempts": (0, 65535),
    "low_rdy_idle_timeout": (1, 5 * MINUTE),
    "low_rdy_timeout": (1, 5 * MINUTE),
    "rdy_redistribute_interval": (0.001, 5),
    "sample_rate": (0, 99),
}


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How one client behaves; all durations are seconds."""

    # connection
    client_id: str = field(default_factory=lambda: socket.gethostname().partition(".")[0])
    hostname: str = field(default_factory=socket.gethostname)
    user_agent: str = f"nsqcore/{NSQ_VERSION}"
    dial_timeout: float = 1
    read_timeout: float = MINUTE
    heartbeat_interval: float = 30
    sample_rate: int = 0
    output_buffer_size: int = 16384
    output_buffer_timeout: float = 0.25
    msg_timeout: float = 0  # 0 leaves it to the server

    # discovery
    lookupd_poll_interval: float = MINUTE
    lookupd_poll_jitter: float = 0.3
    lookupd_poll_timeout: float = MINUTE

    # consuming
    max_attempts: int = 5  # 0 means for ever
    default_requeue_delay: float = 90
    max_requeue_delay: float = 15 * MINUTE
    backoff_strategy: str = "exponential"
    backoff_multiplier: float = 1
    max_backoff_duration: float = 2 * MINUTE  # 0 switches backing off off
    low_rdy_idle_timeout: float = 10
    low_rdy_timeout: float = 30
    rdy_redistribute_interval: float = 5

    # not supported yet; asking for them is an error rather than a silent plain connection
    tls_v1: bool = False
    deflate: bool = False
    snappy: bool = False
    auth_secret: str = ""

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} {value:g} is out of range {low:g}-{high:g}")
        if self.backoff_strategy not in {"exponential", "full_jitter"}:
            raise ValueError(f"backoff_strategy {self.backoff_strategy!r} is not exponential or full_jitter")
        if self.heartbeat_interval > self.read_timeout:
            raise ValueError("heartbeat_interval must not be above read_timeout")
        for name in ("tls_v1", "deflate", "snappy", "auth_secret"):
            if getattr(self, name):
                raise ValueError(f"{name} is not supported yet")

    def identify_settings(self) -> dict[str, Any]:
        """What IDENTIFY asks for; times in milliseconds."""
        return {
            "client_id": self.client_id,
            "hostname": self.hostname,
            "user_agent": self.user_agent,
            "feature_negotiation": True,
            "heartbeat_interval": round(self.heartbeat_interval * 1000),
            "sample_rate": self.sample_rate,
            "output_buffer_size": self.output_buffer_size,
            "output_buffer_timeout": round(self.output_buffer_timeout * 1000),
            "msg_timeout": round(self.msg_timeout * 1000),
            "tls_v1": False,
            "deflate": False,
            "snappy": False,
        }
