"""Which nodes are the replicas of this one: those of --replica, or the best that nsqlookupd names."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from nsqcore.process.logs import Log
from nsqd.replication.choosing import Candidate, ReplicaHealth, choose_replicas, identified, named_replicas
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
        self.replicas: tuple[Holder, ...] = node.state.record.replicas
        self._node = node
        self._me = me
        self._named = tuple(named)
        self._candidates = candidates
        self._log = log
        self._health = ReplicaHealth(replace_after_ns)
        # The time of the last query for candidates.
        self._asked_ns = -_COMPLETE_NS
        # Why there are too few replicas, in words; empty while there are enough.
        self.waits_for = ""
        self._missing_since_ns = now_ns
        if self._named:
            self.replicas, found = named_replicas(self.replicas, self._named)
            self.replicas = choose_replicas(me, self.replicas, found, self._count, self._health, now_ns)
        if self.replicas:
            self._set(self.replicas)

    @property
    def _count(self) -> int:
        wanted = self._node.settings.replicas
        return max(1, wanted) if self._node.state.is_decommissioning else wanted

    @property
    def unknown_addresses(self) -> list[str]:
        """Addresses of replicas whose identity is not known yet."""
        return [one.address for one in self.replicas if not one.identity]

    def update(self, connectors: Sequence[Connector], now_ns: int) -> None:
        """Note which replicas accept the stream, refuse or drain; called ten times a second."""
        for connector in connectors:
            link = connector.link
            replicas = self.replicas
            if link is not None:
                replicas = identified(replicas, connector.address, link.peer, self._health, now_ns)
                if not self._named:
                    # A node that moved is found by its identity.
                    replicas = tuple(
                        Holder(one.identity, connector.address) if one.identity == link.peer else one
                        for one in replicas
                    )
            if replicas != self.replicas:
                self._set(replicas)
            holder = next((one for one in self.replicas if _is_at(one, connector)), None)
            if holder is None:
                continue
            if link is not None:
                if link.draining is not None:
                    self._health.drains(holder, draining=link.peer_drains)
                stream = link.stream_of(self._node.primary)
                if stream is not None and stream.is_up:
                    self._health.accepts(holder, now_ns)
            elif connector.refused and self._health.refuses(holder, connector.refused, now_ns):
                self._asked_ns = -_COMPLETE_NS

    async def choose(self, now_ns: int) -> None:
        """Query candidates if that is due, and replace replicas."""
        count = self._count
        missing = len(self.replicas) < count or any(
            self._health.is_replaceable(one, now_ns) for one in self.replicas
        )
        target = self._node.state.target
        interval_ns = _MISSING_NS if missing else _COMPLETE_NS
        if target and all(one.address != target for one in self.replicas):
            interval_ns = 0
        elif not (self._named or target or self.waits_for) and len(self.replicas) < count:
            interval_ns = _UNKNOWN_NS
        if now_ns < self._asked_ns + interval_ns or (count == 0 and not self.replicas):
            return
        before = self.replicas
        self._asked_ns = now_ns
        if self._named:
            self.replicas, found = named_replicas(
                self.replicas, (*self._named, *([target] if target else []))
            )
        else:
            found = list(await self._candidates())
        if target:
            chosen = self._with_target(target)
        else:
            chosen = choose_replicas(self._me, self.replicas, found, count, self._health, now_ns)
        if chosen != before:
            self._set(chosen)
        self._note_missing(count, now_ns)

    def _note_missing(self, count: int, now_ns: int) -> None:
        """Log once that no candidate exists; the nsqlookupd of the original names none."""
        if len(self.replicas) >= count:
            self.waits_for, self._missing_since_ns = "", now_ns
        elif not self.waits_for and now_ns - self._missing_since_ns >= _MISSING_NS:
            self.waits_for = "a candidate"
            self._log.warning(
                "REPLICATION: %d of %d replicas are chosen, no other candidate exists: %s",
                *(len(self.replicas), count),
                "name nodes with --replica, or let nsqd register at an nsqlookupd that names candidates",
            )

    def _with_target(self, target: str) -> tuple[Holder, ...]:
        """The replicas, and the target of a decommission, which is the last one."""
        others = tuple(one for one in self.replicas if one.address != target)
        known = [one for one in self.replicas if one.address == target]
        return (*others, *(known or [Holder(b"", target)]))

    def _set(self, replicas: tuple[Holder, ...]) -> None:
        self.replicas = replicas
        self._node.set_replicas(replicas)
        names = ", ".join(one.address for one in replicas)
        self._log.info("REPLICATION: replicas are %s", names or "not known yet")


def _is_at(replica: Holder, connector: Connector) -> bool:
    """Whether the connector searches for that replica."""
    if connector.identity:
        return replica.identity == connector.identity
    return replica.address == connector.address
