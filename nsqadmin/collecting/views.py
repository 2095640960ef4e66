"""What questions about the cluster are answered with; PURE."""

from dataclasses import dataclass

from nsqadmin.collecting.look import Look
from nsqadmin.figures.missing import Missing
from nsqadmin.figures.records import TopicRecord
from nsqadmin.figures.sums import ClusterSum
from nsqcore.cluster.errors import NodeError
from nsqcore.cluster.models import NodeInfo, TopicStats


@dataclass(frozen=True, slots=True)
class NodeView:
    """One nsqd: how it is listed, its last good figures, and why there are no newer ones."""

    producer: NodeInfo
    out_of_date: bool
    look: Look | None = None
    error: NodeError | None = None
    silent_since_s: float = 0.0
    # Messages a draining node still owes; None when it is not draining.
    remaining: int | None = None
    # What it owed when its drain was first seen.
    draining_from: int = 0
    listed: bool = True

    @property
    def address(self) -> str:
        return self.producer.http_address

    @property
    def answers(self) -> bool:
        return self.look is not None and self.error is None


@dataclass(frozen=True, slots=True)
class LookupdView:
    address: str
    error: NodeError | None


@dataclass(frozen=True, slots=True)
class Overview:
    """The whole cluster: every topic, every node, and the topics that nobody produces now."""

    sum: ClusterSum
    idle_topics: tuple[str, ...]
    nodes: tuple[NodeView, ...]
    missing: tuple[Missing, ...]
    lookupds: tuple[LookupdView, ...]


@dataclass(frozen=True, slots=True)
class StaleTopic:
    """A topic on a node that gives no figures now: what it held when it gave the last."""

    address: str
    hostname: str
    stats: TopicStats
    at_s: float


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic with all its nodes, and those that are silent."""

    total: TopicRecord
    shares: dict[str, tuple[TopicStats, Look]]
    stale: tuple[StaleTopic, ...] = ()
