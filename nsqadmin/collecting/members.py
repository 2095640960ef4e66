"""The last known state of each nsqd and each nsqlookupd, and which of them count."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any

from nsqadmin.collecting.answers import UpstreamError
from nsqadmin.collecting.node_snapshot import Load, Newer, NodeSnapshot
from nsqadmin.stats.filling import Filling
from nsqadmin.stats.instant import Instant
from nsqadmin.stats.problems import DiskState, Level, Problem, problems_of_node, worst_level
from nsqadmin.stats.trend import NodePace
from nsqclient.wire.durations import SECOND
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.discovery import merge_nodes
from nsqcore.cluster.models import DiskStats, NodeInfo, TopicStats


@dataclass(slots=True, eq=False)
class Member:
    """One nsqd: its listing, its last good statistics, and why there are no newer ones.

    ``asked_at`` is the address of our requests; if nsqds are listed by hand, the node may announce another.
    """

    request_address: str
    producer: NodeInfo
    # Whether it, or an nsqlookupd, has described it.
    is_described: bool = True
    # Whether an nsqlookupd lists it, or the operator.
    listed: bool = True
    # Whether another node runs a newer version.
    out_of_date: bool = False
    # Nodes that deliver its messages from promoted copies, and how many are pending there.
    owners: Sequence[tuple[str, int]] = ()
    pace: NodePace = field(default_factory=NodePace)
    snapshot: NodeSnapshot | None = None
    # The statistics in the present sums: a page with a sum must not also show newer statistics.
    added: NodeSnapshot | None = None
    error: NodeError | None = None
    silent_since: Instant | None = None
    # The time of its first answer after a failure or after its start.
    returned: Instant | None = None
    # Pending messages of a draining node, None if it is not draining; and when that was requested.
    remaining: int | None = None
    drain_asked_ns: int = 0
    # The number of pending messages when its drain was first seen.
    draining_from: int = 0
    # Set when the first request has ended, with an answer or an error.
    first_answer: asyncio.Event = field(default_factory=asyncio.Event)
    # Topics requested separately after the pending request for all statistics.
    newer: dict[str, Newer] = field(default_factory=dict)
    # The pending or last request for all statistics, and when it was sent.
    poll: "asyncio.Task[None] | None" = None
    poll_ns: int = 0
    # When the statistics of ``snapshot`` were requested.
    snapshot_requested_ns: int = 0
    cost_s: float = 0.0
    # When its consumers were last requested.
    consumers_ns: int = 0
    filling: Filling = field(default_factory=Filling)
    # Seconds until its disk is full at the present rate; None while it does not fill up.
    full_in_s: float | None = None

    @property
    def address(self) -> str:
        return self.producer.http_address

    @property
    def answers(self) -> bool:
        return self.snapshot is not None and self.error is None

    @property
    def is_unreached(self) -> bool:
        """Whether it is down, and no other node delivers its messages."""
        return self.error is not None and not self.owners

    @property
    def tombstoned(self) -> frozenset[str]:
        """Topics for which nsqlookupd does not send consumers to this node."""
        return frozenset(entry.topic for entry in self.producer.topics if entry.tombstoned)

    @property
    def problems(self) -> list[Problem]:
        """The problems of this node, from its last answers."""
        look, error = self.snapshot, self.error
        disk = self.disk
        found = problems_of_node(
            self.address,
            silent=error.reason if error is not None else "",
            refuses=error is not None and not error.unreachable,
            held=self.load.unfinished if self.load is not None else 0,
            health=look.health if look is not None else "",
            remaining=self.remaining,
            listed=self.listed,
            under_replicated=look.under_replicated if look is not None and error is None else 0,
            owners=[address for address, _ in self.owners],
            pending=sum(pending for _, pending in self.owners),
            disk=DiskState(disk.free_bytes, disk.total_bytes, self.full_in_s) if disk else DiskState(),
        )
        return found if error is None else [replace(one, began=self.silent_since) for one in found]

    @property
    def load(self) -> Load | None:
        """The sums over its topics, at its last answer."""
        return self.snapshot.load if self.snapshot is not None else None

    @property
    def disk(self) -> DiskStats | None:
        return self.snapshot.disk if self.snapshot is not None else None

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
        if not self.answers or self.snapshot is None or not self.listed:
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
        disk = self.disk
        return disk.free_bytes if disk is not None and disk.free_bytes >= 0 else None

    @property
    def disk_used(self) -> float | None:
        """The used share of its disk, 0 to 1; None if it does not report it."""
        disk = self.disk
        if disk is None or disk.total_bytes <= 0:
            return None
        return 1 - disk.free_bytes / disk.total_bytes

    @property
    def fsync_s(self) -> float | None:
        """The time in seconds within which 99 of 100 recent fsyncs ended; None if there was none."""
        disk = self.disk
        return disk.fsync_p99_ns / 1e9 if disk is not None and disk.fsync_p99_ns > 0 else None

    @property
    def drained(self) -> tuple[int, int] | None:
        """The drained messages, and those at the start of the drain; None if it does not drain."""
        remaining, first = self.remaining, self.draining_from
        return None if remaining is None else (max(0, first - remaining), first)

    def to_json(self) -> dict[str, Any]:
        load = self.load
        return {
            "node": self.address,
            "hostname": self.producer.hostname,
            "version": self.producer.version,
            "state": [problem.kind for problem in self.problems],
            "answers": self.answers,
            "statistics_at": self.snapshot.at_s if self.snapshot is not None else None,
            "draining_remaining": self.remaining,
            "under_replicated": self.snapshot.under_replicated if self.snapshot is not None else None,
            "delivered_by": [address for address, _ in self.owners],
            "messages_per_second": load.rate if load is not None else None,
            "depth": load.depth if load is not None else None,
            "in_flight_count": load.in_flight if load is not None else None,
            "deferred_count": load.deferred if load is not None else None,
            "client_count": load.consumers if load is not None else None,
            "message_count": load.messages if load is not None else None,
            "topics": len(self.topic_names),
            "disk_free_bytes": self.disk_free,
            "disk_full_in_s": self.full_in_s,
            "fsync_p99_s": self.fsync_s,
        }

    def holds(self, topic: str, channel: str = "") -> bool:
        """Whether *topic* or *channel* had messages here, or was paused, at the last answer."""
        stats = self.snapshot.topics.get(topic) if self.snapshot is not None else None
        if stats is None:
            return False
        if not channel:
            return bool(stats.depth or stats.paused)
        return any(one.unfinished or one.paused for one in stats.channels if one.channel_name == channel)

    def drains(self, remaining: int | None, asked_ns: int) -> None:
        """Store the answer to a request sent at *asked_ns*, unless a later one was answered before."""
        if asked_ns < self.drain_asked_ns:
            return
        self.drain_asked_ns = asked_ns
        if remaining is not None:
            self.draining_from = max(remaining, self.draining_from if self.remaining is not None else 0)
        self.remaining = remaining

    def failed(self, error: NodeError, at: Instant) -> None:
        if self.error is None:
            self.silent_since = at
        # The error stays until the node answers. A traceback would retain the objects of its frames.
        error.__cause__ = error.__context__ = None
        self.error = error.with_traceback(None)

    def answered(self, look: NodeSnapshot, asked_ns: int) -> None:
        """Store *look*, requested at *asked_ns*; newer statistics of single topics stay."""
        for name in [name for name, (at_ns, _) in self.newer.items() if at_ns <= asked_ns]:
            del self.newer[name]
        if self.snapshot is not None and (
            self.error is not None or look.start_time != self.snapshot.start_time
        ):
            self.returned = look.at
        self.snapshot = look.with_topics(self.newer)
        self.snapshot_requested_ns = asked_ns
        self.full_in_s = self.filling.note(look.at_ns / SECOND, look.disk.free_bytes) if look.disk else None
        self.error = None

    def update_topic(self, topic: str, asked_ns: int, found: tuple[TopicStats, ...]) -> None:
        """Store the statistics of one topic, requested at *asked_ns*."""
        known = self.newer.get(topic)
        if (
            self.snapshot is None
            or asked_ns < self.snapshot_requested_ns
            or (known is not None and asked_ns < known[0])
        ):
            return
        self.newer[topic] = asked_ns, found
        self.snapshot = self.snapshot.with_topics({topic: self.newer[topic]})


@dataclass(slots=True)
class MemberList:
    """The list of an nsqlookupd: its last good answers, and why there are no newer ones."""

    address: str
    producers: tuple[NodeInfo, ...] = ()
    topics: frozenset[str] = frozenset()
    error: NodeError | None = None
    # Digests of the last answers, so that an unchanged list is not parsed again.
    nodes_digest: bytes = b""
    topics_digest: bytes = b""
    # How long the answers took to arrive.
    took_s: float = 0.0


def nameless(address: str) -> NodeInfo:
    """Describe an nsqd that has not answered yet."""
    host, _, port = address.rpartition(":")
    return NodeInfo(host.strip("[]"), "", 0, int(port), "")


def is_reachable(producer: NodeInfo) -> bool:
    """Return whether the announced address may get requests: cloud services answer at link-local ones."""
    try:
        return not ip_address(producer.broadcast_address.strip("[]").partition("%")[0]).is_link_local
    except ValueError:
        return True


def listed(registers: Iterable[MemberList]) -> list[NodeInfo]:
    """Return the nsqds that *registers* list; an unreachable nsqlookupd counts with its last list.

    So a node that is registered with one nsqlookupd only stays listed while that nsqlookupd is unreachable.
    """
    known = list(registers)
    silent = tuple(f"{one.address}/" for one in known if one.error is not None)
    found = list(
        filter(is_reachable, merge_nodes((register.address, register.producers) for register in known))
    )
    if not silent:
        return found
    # The present registrations at an unreachable nsqlookupd are unknown.
    return [
        replace(one, remote_addresses=tuple(at for at in one.remote_addresses if not at.startswith(silent)))
        for one in found
    ]


def listed_now(registers: Sequence[MemberList]) -> list[NodeInfo]:
    """Return the nsqds that are listed by the nsqlookupds that answer."""
    answering = [one for one in registers if one.error is None]
    return list(filter(is_reachable, merge_nodes((one.address, one.producers) for one in answering)))


def registered_topics(registers: Iterable[MemberList]) -> set[str]:
    return {topic for register in registers for topic in register.topics}


def require_one(members: Iterable[Member]) -> None:
    """Raise UpstreamError if there are nsqds and none of them answers."""
    found = list(members)
    silent = errors_of(found)
    if found and len(silent) == len(found):
        raise UpstreamError("nsqd", silent)


def errors_of(members: Iterable[Member]) -> tuple[NodeError, ...]:
    return tuple(member.error for member in members if member.error is not None)


def register_errors(registers: Iterable[MemberList], path: str) -> tuple[NodeError, ...]:
    """Return the errors of the nsqlookupds that do not answer, as if *path* had been requested."""
    return tuple(
        NodeError(
            one.error.verb,
            f"http://{one.address}{path}",
            one.address,
            one.error.reason,
            status=one.error.status,
            code=one.error.code,
        )
        for one in registers
        if one.error is not None
    )


def unasked(address: str) -> MemberList:
    reason = "it has not answered yet"
    return MemberList(address, error=NodeError("GET", f"http://{address}/nodes", address, reason))


def unregistered(nodes: Iterable[Member]) -> list[tuple[str, list[str]]]:
    """Return the topics that nodes hold but that no nsqlookupd lists for them, each with these nodes."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if node.answers and node.snapshot is not None and node.listed:
            for name in node.snapshot.topics.keys() - {entry.topic for entry in node.producer.topics}:
                found.setdefault(name, []).append(node.address)
    return sorted(found.items())
