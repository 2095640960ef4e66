"""Which nodes are the replicas of this one, and until when. Pure; times are passed in, in nanoseconds.

A node has one list of replicas for all its topics: the fewer sets of nodes hold the same data, the less often
data is lost. Each node orders all others by a hash of both identities. So nodes spread over replicas without
an agreement, and a node that joins or leaves changes the replicas of few others. Another zone is preferred,
then another host. A node is its identity; an address only says where to look for it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from xxhash import xxh3_64_intdigest

from nsqd.replication.frames import REFUSALS, Holder, Refuse

# A replica that refuses for another reason is replaced without a wait. These pass by themselves.
_PASSING_REFUSALS: Final = frozenset(
    (Refuse.EARLIER_INCARNATION, Refuse.BUSY, Refuse.BAD_FRAME, Refuse.STOPPING)
)
LASTING_REFUSALS: Final = frozenset(REFUSALS) - _PASSING_REFUSALS


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that may become a replica; an unknown zone or host is empty."""

    identity: bytes
    address: str
    zone: str = ""
    host: str = ""


def score(primary: bytes, replica: bytes) -> int:
    """How much a node prefers that replica; each pair of identities has its own score."""
    return xxh3_64_intdigest(primary + replica)


def choose(
    me: Candidate, candidates: Iterable[Candidate], count: int, chosen: Iterable[Candidate] = ()
) -> list[Candidate]:
    """The *count* best of the *candidates*, in addition to those already *chosen*; fewer if there are fewer.

    A candidate is preferred in a zone without this node and its other replicas, then on such a host. A
    candidate with an unknown zone, or host, counts as elsewhere.
    """
    new: list[Candidate] = []
    others = [me, *chosen]
    left = {one.identity: one for one in candidates}
    for one in others:
        left.pop(one.identity, None)
    while left and len(new) < count:
        zones = {one.zone for one in others if one.zone}
        hosts = {one.host for one in others if one.host}
        best = min(
            left.values(),
            key=lambda one: (one.zone in zones, one.host in hosts, -score(me.identity, one.identity)),
        )
        new.append(best)
        others.append(best)
        del left[best.identity]
    return new


@dataclass(slots=True)
class _Health:
    """The known state of one node."""

    # The time when it last accepted the stream, or of the first request.
    accepted_ns: int | None = None
    avoided_until_ns: int = 0
    drains: bool = False


class ReplicaHealth:
    """When a replica may be replaced by another node, and when a node may be chosen again.

    A connection is no sign of health: a replica may accept it and refuse the stream again and again. The time
    counts from the last moment in which the replica accepted the stream. Nodes are given by their identities.
    """

    def __init__(self, replace_after_ns: int) -> None:
        self.replace_after_ns = replace_after_ns
        self._nodes: defaultdict[bytes, _Health] = defaultdict(_Health)

    def accepts(self, replica: bytes, now_ns: int) -> None:
        """Note that the replica accepts the stream now, or is in sync."""
        health = self._nodes[replica]
        health.accepted_ns, health.avoided_until_ns = now_ns, 0

    def refuses(self, replica: bytes, code: int, now_ns: int) -> bool:
        """Note a refusal; returns whether it is a new reason to replace the replica now."""
        if code not in LASTING_REFUSALS:
            return False
        is_new = not self.is_avoided(replica, now_ns)
        self.avoid(replica, now_ns)
        return is_new

    def drains(self, replica: bytes, *, draining: bool) -> None:
        """Note the last `Draining` frame of the replica."""
        self._nodes[replica].drains = draining

    def is_replaceable(self, replica: bytes, now_ns: int) -> bool:
        """Whether another node may take the place of the replica. The time counts from the first call."""
        health = self._nodes[replica]
        if health.drains or self.is_avoided(replica, now_ns):
            return True
        if health.accepted_ns is None:
            health.accepted_ns = now_ns
        return now_ns - health.accepted_ns >= self.replace_after_ns

    def forget(self, replica: bytes, now_ns: int) -> None:
        """Note that a node is no longer a replica; one that was replaceable is avoided for a while."""
        if self.is_replaceable(replica, now_ns):
            self.avoid(replica, now_ns)
        health = self._nodes[replica]
        health.accepted_ns, health.drains = None, False

    def avoid(self, node: bytes, now_ns: int) -> None:
        """Do not choose a node for a while."""
        self._nodes[node].avoided_until_ns = now_ns + self.replace_after_ns

    def is_avoided(self, node: bytes, now_ns: int) -> bool:
        """Whether a node may not be chosen for a while."""
        return now_ns < self._nodes[node].avoided_until_ns


def choose_replicas(
    me: Candidate,
    replicas: Sequence[Holder],
    candidates: Sequence[Candidate],
    count: int,
    health: ReplicaHealth,
    now_ns: int,
) -> tuple[Holder, ...]:
    """The replicas of this node from now on, with their present addresses, in the order of their places.

    A healthy replica keeps its place. An unhealthy one is replaced only when a candidate can take its place,
    and new replicas come last. The caller makes the list durable before a stream begins.
    """
    known = {one.identity: one for one in candidates}
    present = {
        one.identity: known.get(one.identity, Candidate(one.identity, one.address)) for one in replicas
    }
    healthy = [one for one in present if not health.is_replaceable(one, now_ns)][:count]
    free = [
        one
        for one in candidates
        if one.identity not in present and not health.is_avoided(one.identity, now_ns)
    ]
    missing = count - len(healthy)
    # The zone and the host of an unhealthy replica count as free.
    new = choose(me, free, missing, [present[one] for one in healthy])
    unhealthy = [one for one in present if one not in healthy][: missing - len(new)]
    stays = [one for one in present if one in healthy or one in unhealthy]
    for one in present:
        if one not in stays:
            health.forget(one, now_ns)
    return tuple(Holder(one.identity, one.address) for one in (*(present[one] for one in stays), *new))
