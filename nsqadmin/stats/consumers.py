"""A consumer as lists and reasons show it; PURE."""

from typing import Any, Final

from nsqadmin.stats.activity import Activity
from nsqadmin.stats.records import ClientRecord

# A consumer with messages in flight that finishes none for this long is named.
SILENT_S: Final = 15.0


class Consumer:
    """A consumer's connection to one node, and its activity."""

    def __init__(self, topic: str, channel: str, client: ClientRecord, activity: Activity) -> None:
        self.topic_name = topic
        self.channel_name = channel
        self.client = client
        self.stats = client.stats
        self.rate = activity.rate
        self.silent_s = activity.silent_s

    @property
    def name(self) -> str:
        return self.stats.name

    @property
    def place(self) -> str:
        return f"{self.topic_name} / {self.channel_name}"

    @property
    def names(self) -> list[str]:
        """The texts in which a filter searches."""
        return [self.name, self.stats.hostname, self.stats.remote_address, self.stats.user_agent]

    @property
    def is_silent(self) -> bool:
        return bool(self.stats.in_flight_count) and (self.silent_s or 0.0) >= SILENT_S

    @property
    def states(self) -> list[str]:
        if self.is_silent:
            return ["silent"]
        return [] if self.stats.ready_count or self.stats.in_flight_count else ["RDY 0"]

    @property
    def attributes(self) -> list[str]:
        stats = self.stats
        found = {
            f"sampled {stats.sample_rate}%": bool(stats.sample_rate),
            "TLS": stats.tls,
            "deflate": stats.deflate,
            "snappy": stats.snappy,
            f"authed {stats.auth_identity}": stats.authed,
            stats.topology_region: bool(stats.topology_region),
            stats.topology_zone: bool(stats.topology_zone),
        }
        return [name for name, is_so in found.items() if is_so]

    def to_json(self) -> dict[str, Any]:
        return {
            "topic_name": self.topic_name,
            "channel_name": self.channel_name,
            **self.client.to_json(),
            "finished_per_second": self.rate,
            "silent_for": self.silent_s,
        }
