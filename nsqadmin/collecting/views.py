"""The answers to questions about the cluster; PURE."""

from dataclasses import dataclass, replace

from nsqadmin.collecting.look import Look
from nsqadmin.figures import attention
from nsqadmin.figures.attention import Concern, DiskState
from nsqadmin.figures.cluster_sum import ClusterSum
from nsqadmin.figures.instant import Instant
from nsqadmin.figures.missing import Missing
from nsqadmin.figures.sums import Share, TopicSum
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.models import NodeInfo, TopicStats


@dataclass(frozen=True, slots=True)
class NodeView:
    """One nsqd: how it is listed, its last good figures, and why there are no newer ones."""

    producer: NodeInfo
    out_of_date: bool
    look: Look | None = None
    error: NodeError | None = None
    silent_since: Instant | None = None
    # Messages that a draining node still owes; None if it is not draining.
    remaining: int | None = None
    # The number of messages that it owed when its drain was first seen.
    draining_from: int = 0
    listed: bool = True
    # Seconds until its disk is full at the present rate; None while it does not fill up.
    full_in_s: float | None = None
    # Nodes that deliver its messages from promoted copies, and how many are pending there.
    owners: tuple[tuple[str, int], ...] = ()

    @property
    def address(self) -> str:
        return self.producer.http_address

    @property
    def answers(self) -> bool:
        return self.look is not None and self.error is None

    @property
    def concerns(self) -> list[Concern]:
        """The troubles of this node, judged by its last answers."""
        look, error = self.look, self.error
        found = attention.of_node(
            self.address,
            silent=error.reason if error is not None else "",
            refuses=error is not None and not error.unreachable,
            held=look.load.owed if look is not None else 0,
            health=look.health if look is not None else "",
            remaining=self.remaining,
            listed=self.listed,
            under_replicated=look.under_replicated if look is not None and error is None else 0,
            owners=[address for address, _ in self.owners],
            pending=sum(pending for _, pending in self.owners),
            disk=DiskState(look.disk.free_bytes, look.disk.total_bytes, self.full_in_s)
            if look is not None and look.disk is not None
            else DiskState(),
        )
        if error is None:
            return found
        return [replace(concern, began=self.silent_since) for concern in found]


@dataclass(frozen=True, slots=True)
class LookupdView:
    address: str
    error: NodeError | None


@dataclass(frozen=True, slots=True)
class Overview:
    """The whole cluster: every topic, every node, and the troubles that need attention, the worst first."""

    sum: ClusterSum
    troubles: tuple[Concern, ...]
    nodes: tuple[NodeView, ...]
    missing: tuple[Missing, ...]
    lookupds: tuple[LookupdView, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one round: the sums, every node, all troubles, those that came and those that went."""

    now: Instant
    sum: ClusterSum
    nodes: tuple[NodeView, ...]
    troubles: tuple[Concern, ...]
    came: tuple[Concern, ...]
    went: tuple[Concern, ...]


@dataclass(frozen=True, slots=True)
class StaleTopic:
    """A topic on a node that is silent or has left, with the last figures that the node gave."""

    address: str
    hostname: str
    stats: TopicStats
    at_s: float
    has_left: bool = False
    # Nodes that deliver the messages of this node from a promoted copy.
    owners: tuple[str, ...] = ()

    @property
    def owed(self) -> int:
        return self.stats.depth + sum(channel.owed for channel in self.stats.channels)


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic with all its nodes, and those that are silent."""

    total: TopicSum
    shares: dict[str, Share]
    stale: tuple[StaleTopic, ...] = ()
