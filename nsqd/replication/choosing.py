"""Which nodes are the replicas of this one, and until when. Pure; times are passed in, in nanoseconds.

A node has one list of replicas for all its topics: the fewer sets of nodes hold the same data, the less often
data is lost. Each node orders all others by a hash of both identities. So nodes spread over replicas without
an agreement, and a node that joins or leaves changes the replicas of few others. Another zone is preferred,
then another host. A node is its identity; an address only says where to look for it.
"""

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
    """A node that may become a replica; unknown fields are empty.

    A node that is named by its address has no identity before its first handshake.
    """

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
    left = _unknown_to(others, candidates)
    while left and len(new) < count:
        zones = {one.zone for one in others if one.zone}
        hosts = {one.host for one in others if one.host}
        best = min(
            left,
            key=lambda one: (
                one.zone in zones,
                one.host in hosts,
                -score(me.identity, one.identity or one.address.encode()),
                one.address,
            ),
        )
        new.append(best)
        others.append(best)
        left = _unknown_to([best], left)
    return new


def _unknown_to(known: Iterable[Candidate], candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates that are other nodes than those known; two are compared by address if one is named."""
    known = list(known)
    identities = {one.identity for one in known if one.identity}
    addresses = {one.address for one in known}
    named = {one.address for one in known if not one.identity}
    return [
        one
        for one in candidates
        if one.identity not in identities and one.address not in (named if one.identity else addresses)
    ]


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
    counts from the last moment in which the replica accepted the stream.
    """

    def __init__(self, replace_after_ns: int) -> None:
        self.replace_after_ns = replace_after_ns
        # By identity, or by the address of a named node without one.
        self._nodes: dict[bytes, _Health] = {}

    def _of(self, one: Holder | Candidate) -> _Health:
        return self._nodes.setdefault(one.identity or one.address.encode(), _Health())

    def accepts(self, replica: Holder, now_ns: int) -> None:
        """Note that the replica accepts the stream now, or is in sync."""
        health = self._of(replica)
        health.accepted_ns, health.avoided_until_ns = now_ns, 0

    def refuses(self, replica: Holder, code: int, now_ns: int) -> bool:
        """Note a refusal; returns whether it is a new reason to replace the replica now."""
        if code not in LASTING_REFUSALS:
            return False
        is_new = not self.is_avoided(replica, now_ns)
        self.avoid(replica, now_ns)
        return is_new

    def drains(self, replica: Holder, *, draining: bool) -> None:
        """Note the last `Draining` frame of the replica."""
        self._of(replica).drains = draining

    def is_replaceable(self, replica: Holder, now_ns: int) -> bool:
        """Whether another node may take the place of the replica. The time counts from the first call."""
        health = self._of(replica)
        if health.drains or self.is_avoided(replica, now_ns):
            return True
        if health.accepted_ns is None:
            health.accepted_ns = now_ns
        return now_ns - health.accepted_ns >= self.replace_after_ns

    def chosen(self, replica: Holder, now_ns: int) -> None:
        """Note that a node became a replica: it has time to accept the stream.

        A candidate does not drain, or nsqlookupd would not name it.
        """
        self._of(replica).drains = False
        self.accepts(replica, now_ns)

    def forget(self, replica: Holder, now_ns: int) -> None:
        """Note that a node is no longer a replica; one that was replaceable is avoided for a while."""
        if self.is_replaceable(replica, now_ns):
            self.avoid(replica, now_ns)
        health = self._of(replica)
        health.accepted_ns, health.drains = None, False

    def avoid(self, node: Holder | Candidate, now_ns: int) -> None:
        """Do not choose a node for a while."""
        self._of(node).avoided_until_ns = now_ns + self.replace_after_ns

    def identified(self, replica: Holder, identity: bytes) -> None:
        """Note the identity of a replica that was known by its address."""
        accepted_ns = self._of(replica).accepted_ns
        if accepted_ns is not None:
            self._of(Holder(identity, replica.address)).accepted_ns = accepted_ns

    def is_avoided(self, node: Holder | Candidate, now_ns: int) -> bool:
        """Whether a node may not be chosen for a while."""
        return now_ns < self._of(node).avoided_until_ns


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
    known = {one.identity: one for one in candidates if one.identity}
    free = [one for one in candidates if not health.is_avoided(one, now_ns)]
    healthy = [one for one in replicas if not health.is_replaceable(one, now_ns)][:count]
    missing = count - len(healthy)
    taken = [known.get(one.identity, Candidate(one.identity, one.address)) for one in replicas]
    # An unhealthy replica is not chosen in its own place, and its zone and host count as free.
    staying = [one for old, one in zip(replicas, taken, strict=True) if old in healthy]
    new = choose(me, _unknown_to(taken, free), missing, staying)
    unhealthy = [one for one in replicas if one not in healthy][: missing - len(new)]
    stays = [one for one in replicas if one in healthy or one in unhealthy]
    for one in replicas:
        if one not in stays:
            health.forget(one, now_ns)
    added = [Holder(one.identity, one.address) for one in new]
    for one in added:
        health.chosen(one, now_ns)
    return (*(_with_address_of(one, known.get(one.identity)) for one in stays), *added)


def _with_address_of(replica: Holder, candidate: Candidate | None) -> Holder:
    return replica if candidate is None else Holder(replica.identity, candidate.address)


def named_replicas(
    replicas: Sequence[Holder], addresses: Sequence[str]
) -> tuple[tuple[Holder, ...], list[Candidate]]:
    """The replicas that are named in flags, and the candidates: no other nodes are replicas then."""
    named = tuple(one for one in replicas if one.address in addresses)
    return named, [Candidate(b"", address) for address in addresses]


def identified(
    replicas: Sequence[Holder], address: str, identity: bytes, health: ReplicaHealth, now_ns: int
) -> tuple[Holder, ...]:
    """The replicas after a node with this identity has answered at the address of a named replica.

    A named node may get another data path, and so another identity. Two names of one node are one replica.
    """
    found: list[Holder] = []
    for one in replicas:
        if one.address == address and one.identity != identity:
            health.identified(one, identity)
            one = Holder(identity, address)
        if one.identity and any(one.identity == other.identity for other in found):
            health.avoid(Holder(b"", one.address), now_ns)
        else:
            found.append(one)
    return tuple(found)
