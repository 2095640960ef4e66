"""What questions about the whole cluster are answered with; PURE."""

from dataclasses import dataclass

from nsqadmin.figures.records import TopicRecord
from nsqcore.cluster.errors import NodeError
from nsqcore.cluster.models import NodeInfo, NodeStats


@dataclass(frozen=True, slots=True)
class NodeView:
    """One nsqd: how it is listed, and its figures unless it did not answer."""

    producer: NodeInfo
    out_of_date: bool
    stats: NodeStats | None
    error: NodeError | None
    topics: tuple[TopicRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class LookupdView:
    address: str
    error: NodeError | None


@dataclass(frozen=True, slots=True)
class Overview:
    """The whole cluster: every topic's total, every node, and the topics that nobody produces now."""

    topics: tuple[TopicRecord, ...]
    idle_topics: tuple[str, ...]
    nodes: tuple[NodeView, ...]
    lookupds: tuple[LookupdView, ...]
