"""Rows of the lists of consumers and nodes: statistics and problems."""

from collections.abc import Iterable
from typing import Any

from nsqadmin.collecting.members import Member
from nsqadmin.stats.activity import Activity
from nsqadmin.stats.problems import Level, worst_level
from nsqadmin.stats.records import ClientRecord
from nsqadmin.stats.slow import SILENT_S, ConsumerState


class ConsumerRow:
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

    @property
    def state(self) -> ConsumerState:
        """The state from which the reasons for a slow channel are derived."""
        stats = self.stats
        return ConsumerState(
            self.name, self.client.node, stats.in_flight_count, stats.ready_count, self.silent_s, self.rate
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "topic_name": self.topic_name,
            "channel_name": self.channel_name,
            **self.client.to_json(),
            "finished_per_second": self.rate,
            "silent_for": self.silent_s,
        }


class NodeRow:
    """An nsqd with its last good statistics."""

    def __init__(self, view: Member) -> None:
        self.view = view
        self.producer = view.producer
        self.address = view.address
        self.out_of_date = view.out_of_date
        self.answers = view.answers
        self.error = view.error
        self.snapshot = view.snapshot
        self.load = view.snapshot.load if view.snapshot is not None else None
        self.tombstoned = view.tombstoned
        self.problems = view.problems

    @property
    def level(self) -> Level | None:
        return worst_level(self.problems)

    @property
    def states(self) -> list[str]:
        old = ["old version"] if self.out_of_date else []
        return ([problem.kind for problem in self.problems] or ["healthy"]) + old

    @property
    def zone(self) -> list[str]:
        return [name for name in (self.producer.topology_zone, self.producer.topology_region) if name]

    @property
    def names(self) -> list[str]:
        """The texts in which a filter searches."""
        return [self.address, self.producer.hostname]

    @property
    def topic_names(self) -> list[str]:
        """Topics that are listed or held; the two differ for a moment after a change."""
        listed = {entry.topic for entry in self.producer.topics}
        return sorted(listed | (self.snapshot.topics.keys() if self.snapshot is not None else set()))

    @property
    def differences(self) -> list[str]:
        """Sentences about topics that are held but not registered, or registered but not held."""
        if not self.answers or self.snapshot is None or not self.view.listed:
            return []
        listed, held = {entry.topic for entry in self.producer.topics}, self.snapshot.topics.keys()
        return [
            *(f"{name} is held and not registered" for name in sorted(held - listed)),
            *(f"{name} is registered and not held" for name in sorted(listed - held)),
        ]

    @property
    def urgency(self) -> float:
        """The order of nodes: those with problems first, then those with wrong registrations."""
        return (self.level or 0) + (0.5 if self.differences else 0.0)

    @property
    def disk_free(self) -> int | None:
        """Free bytes of its disk; None if it does not report them."""
        disk = self.snapshot.disk if self.snapshot is not None else None
        return disk.free_bytes if disk is not None and disk.free_bytes >= 0 else None

    @property
    def disk_used(self) -> float | None:
        """The used share of its disk, 0 to 1; None if it does not report it."""
        disk = self.snapshot.disk if self.snapshot is not None else None
        if disk is None or disk.total_bytes <= 0:
            return None
        return 1 - disk.free_bytes / disk.total_bytes

    @property
    def fsync_s(self) -> float | None:
        """The time in seconds within which 99 of 100 recent fsyncs ended; None if there was none."""
        disk = self.snapshot.disk if self.snapshot is not None else None
        return disk.fsync_p99_ns / 1e9 if disk is not None and disk.fsync_p99_ns > 0 else None

    @property
    def drained(self) -> tuple[int, int] | None:
        """The drained messages, and those at the start of the drain; None if it does not drain."""
        remaining, first = self.view.remaining, self.view.draining_from
        return None if remaining is None else (max(0, first - remaining), first)

    def to_json(self) -> dict[str, Any]:
        load = self.load
        return {
            "node": self.address,
            "hostname": self.producer.hostname,
            "version": self.producer.version,
            "state": [problem.kind for problem in self.problems],
            "answers": self.answers,
            "figures_at": self.snapshot.at_s if self.snapshot is not None else None,
            "draining_remaining": self.view.remaining,
            "under_replicated": self.snapshot.under_replicated if self.snapshot is not None else None,
            "delivered_by": [address for address, _ in self.view.owners],
            "messages_per_second": load.rate if load is not None else None,
            "depth": load.depth if load is not None else None,
            "in_flight_count": load.in_flight if load is not None else None,
            "deferred_count": load.deferred if load is not None else None,
            "client_count": load.consumers if load is not None else None,
            "message_count": load.messages if load is not None else None,
            "topics": len(self.topic_names),
            "disk_free_bytes": self.disk_free,
            "disk_full_in_s": self.view.full_in_s,
            "fsync_p99_s": self.fsync_s,
        }


def unregistered(nodes: Iterable[Member]) -> list[tuple[str, list[str]]]:
    """Return the topics that nodes hold but that no nsqlookupd lists for them, each with these nodes."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if node.answers and node.snapshot is not None and node.listed:
            for name in node.snapshot.topics.keys() - {entry.topic for entry in node.producer.topics}:
                found.setdefault(name, []).append(node.address)
    return sorted(found.items())
