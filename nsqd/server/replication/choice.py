"""Which nodes are the replicas of this one: those of --replica, or the best that nsqlookupd names."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from nsqcore.process.logs import Log
from nsqd.replication.choosing import Candidate, ReplicaHealth, choose_replicas
from nsqd.replication.frames import Holder
from nsqd.replication.node import ReplicationNode
from nsqd.server.replication.connector import Connector

# How often candidates are queried: while none is known for a replica, while a replica is missing, and
# otherwise.
_UNKNOWN_NS: Final = 500_000_000
_MISSING_NS: Final = 5_000_000_000
_COMPLETE_NS: Final = 60_000_000_000


class ReplicaChoice:
    """Chooses replicas, and replaces those that are unreachable, refuse or drain."""

    def __init__(
        self,
        node: ReplicationNode,
        me: Candidate,
        named: Sequence[str],
        replace_after_ns: int,
        candidates: Callable[[], Awaitable[Sequence[Candidate]]],
        log: Log,
        now_ns: int,
    ) -> None:
        """*named* are the addresses of --replica; *candidates* asks nsqlookupd."""
        # The replicas of the last start; with --replica no others than those named.
        self.replicas = tuple(one for one in node.state.record.replicas if not named or one.address in named)
        self._node = node
        self._me = me
        self._named = tuple(named)
        # The nodes that have answered at the addresses of --replica and of a target.
        self._connected: list[Candidate] = []
        self._candidates = candidates
        self._log = log
        self._health = ReplicaHealth(replace_after_ns)
        # The time of the last query for candidates.
        self._asked_ns = -_COMPLETE_NS
        # Why there are too few replicas, in words; empty while there are enough.
        self.waits_for = ""
        self._missing_since_ns = now_ns
        if self.replicas:
            self._set(self.replicas)

    @property
    def _count(self) -> int:
        wanted = self._node.settings.replicas
        return max(1, wanted) if self._node.state.is_decommissioning else wanted

    @property
    def addresses(self) -> list[str]:
        """Addresses at which any member may answer: those of --replica, and that of a target."""
        named = (*self._named, self._node.state.target)
        return [one for one in named if one not in ("", self._me.address)]

    @property
    def missing(self) -> int:
        """How many replicas are missing."""
        return max(0, self._count - len(self.replicas))

    def update(self, connectors: Sequence[Connector], now_ns: int) -> None:
        """Note which replicas accept the stream, refuse or drain; called ten times a second."""
        up = {one.link.peer: one for one in connectors if one.link is not None}
        self._connected = [
            Candidate(peer, one.address) for peer, one in up.items() if one.address in self.addresses
        ]
        others = {one.address: one.identity for one in self._connected}
        health = self._health
        for replica in self.replicas:
            peer = replica.identity
            link = up[peer].link if peer in up else None
            if link is not None:
                if link.draining is not None:
                    health.drains(peer, draining=link.peer_drains)
                stream = link.stream_of(self._node.primary)
                if stream is not None and stream.is_up:
                    health.accepts(peer, now_ns)
            elif any(
                one.identity == peer and one.refused and health.refuses(peer, one.refused, now_ns)
                for one in connectors
            ):
                self._asked_ns = -_COMPLETE_NS
            elif others.get(replica.address, peer) != peer:
                # The named node has another data path.
                health.avoid(peer, now_ns)
        if not self._named:
            # A node that moved is found by its identity.
            moved = tuple(
                Holder(one.identity, up[one.identity].address) if one.identity in up else one
                for one in self.replicas
            )
            if moved != self.replicas:
                self._set(moved)

    async def choose(self, now_ns: int) -> None:
        """Query candidates if that is due, and replace replicas."""
        count, target = self._count, self._node.state.target
        if count == 0 and not self.replicas:
            return
        if self._named or target:
            interval_ns = 0
        elif self.missing and not self.waits_for:
            interval_ns = _UNKNOWN_NS
        elif self.missing or any(self._health.is_replaceable(one.identity, now_ns) for one in self.replicas):
            interval_ns = _MISSING_NS
        else:
            interval_ns = _COMPLETE_NS
        if now_ns < self._asked_ns + interval_ns:
            return
        self._asked_ns = now_ns
        before = self.replicas
        if target:
            # It is the last replica, because others may take over first.
            found = [Holder(one.identity, target) for one in self._connected if one.address == target]
            identities = {one.identity for one in found}
            chosen = (*(one for one in before if one.identity not in identities), *found)
        else:
            candidates = self._connected if self._named else await self._candidates()
            chosen = choose_replicas(self._me, self.replicas, candidates, count, self._health, now_ns)
        if chosen != before:
            self._set(chosen)
        self._note_missing(count, now_ns)

    def _note_missing(self, count: int, now_ns: int) -> None:
        """Log once that no candidate exists; the nsqlookupd of the original names none."""
        if not self.missing:
            self.waits_for, self._missing_since_ns = "", now_ns
        elif not self.waits_for and now_ns - self._missing_since_ns >= _MISSING_NS:
            self.waits_for = "a candidate"
            self._log.warning(
                "REPLICATION: %d of %d replicas are chosen, no other candidate exists: start other nsqd, or"
                " name them with --replica if nsqlookupd is the original's",
                *(len(self.replicas), count),
            )

    def _set(self, replicas: tuple[Holder, ...]) -> None:
        self.replicas = replicas
        self._node.set_replicas(replicas)
        names = ", ".join(one.address for one in replicas)
        self._log.info("REPLICATION: replicas are %s", names or "not known yet")
