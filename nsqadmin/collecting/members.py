"""The last known state of each nsqd and each nsqlookupd, and which of them count."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address

from nsqadmin.collecting.answers import UpstreamError
from nsqadmin.collecting.node_snapshot import Newer, NodeSnapshot
from nsqadmin.stats.filling import Filling
from nsqadmin.stats.instant import Instant
from nsqadmin.stats.problems import DiskState, Problem, problems_of_node
from nsqadmin.stats.trend import NodePace
from nsqclient.wire.durations import SECOND
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.discovery import merge_nodes
from nsqcore.cluster.models import NodeInfo, TopicStats


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
    # Pending messages of a draining node; None if it is not draining.
    remaining: int | None = None
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
        disk = look.disk if look is not None else None
        found = problems_of_node(
            self.address,
            silent=error.reason if error is not None else "",
            refuses=error is not None and not error.unreachable,
            held=look.load.unfinished if look is not None else 0,
            health=look.health if look is not None else "",
            remaining=self.remaining,
            listed=self.listed,
            under_replicated=look.under_replicated if look is not None and error is None else 0,
            owners=[address for address, _ in self.owners],
            pending=sum(pending for _, pending in self.owners),
            disk=DiskState(disk.free_bytes, disk.total_bytes, self.full_in_s) if disk else DiskState(),
        )
        return found if error is None else [replace(one, began=self.silent_since) for one in found]

    def holds(self, topic: str, channel: str = "") -> bool:
        """Whether *topic* or *channel* had messages here, or was paused, at the last answer."""
        stats = self.snapshot.topics.get(topic) if self.snapshot is not None else None
        if stats is None:
            return False
        if not channel:
            return bool(stats.depth or stats.paused)
        return any(one.unfinished or one.paused for one in stats.channels if one.channel_name == channel)

    def drains(self, remaining: int | None) -> None:
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
