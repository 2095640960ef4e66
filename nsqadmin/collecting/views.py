"""The answers to questions about the cluster; PURE."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from nsqadmin.collecting.members import Member, MemberList
from nsqadmin.stats.cluster_sum import ClusterSum
from nsqadmin.stats.instant import Instant
from nsqadmin.stats.missing import MissingNode
from nsqadmin.stats.problems import Problem
from nsqadmin.stats.sums import Share, TopicSum
from nsqcore.cluster.models import ChannelStats, TopicStats


class Lacking(NamedTuple):
    """A node that a sum lacks, the reason, and its last known share."""

    address: str
    state: str
    messages: int


@dataclass(frozen=True, slots=True)
class Overview:
    """The whole cluster: every topic, every node, and the problems, the worst first."""

    sum: ClusterSum
    problems: tuple[Problem, ...]
    nodes: tuple[Member, ...]
    missing: tuple[MissingNode, ...]
    lookupds: tuple[MemberList, ...]
    # Unreachable nodes whose messages no other node delivers: address, state and last known depth.
    lacking: tuple[Lacking, ...] = ()

    @property
    def away(self) -> int:
        """The backlog on unreachable nodes, as far as known."""
        return sum(one.messages for one in self.lacking)


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one round: the sums, every node, and all, new and ended problems."""

    now: Instant
    sum: ClusterSum
    nodes: tuple[Member, ...]
    problems: tuple[Problem, ...]
    new: tuple[Problem, ...]
    resolved: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class StaleTopic:
    """A topic on a node that is unreachable or down, with the last statistics of the node."""

    address: str
    hostname: str
    stats: TopicStats
    at_s: float
    has_left: bool = False
    # Nodes that deliver the messages of this node from a promoted copy.
    owners: tuple[str, ...] = ()

    def channel(self, name: str) -> ChannelStats | None:
        return next((one for one in self.stats.channels if one.channel_name == name), None)

    @property
    def unfinished(self) -> int:
        return self.stats.depth + sum(channel.unfinished for channel in self.stats.channels)


def lacking(stale: Iterable[StaleTopic], value: Callable[[StaleTopic], int]) -> str:
    """List the missing nodes of a sum; messages that another node delivers are counted there."""
    return lacks(
        Lacking(one.address, "down" if one.has_left else "unreachable", count)
        for one in stale
        if not one.owners and (count := value(one))
    )


def lacks(found: Iterable[Lacking]) -> str:
    """Describe the missing nodes of a sum, by name or number; empty if it lacks nothing."""
    several = list(found)
    if len(several) > 1:
        return f"{sum(one.messages for one in several):,} on {len(several)} nodes that do not answer"
    return "".join(f"{one.messages:,} on {one.address}, {one.state}" for one in several)


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic with all its nodes, and the unreachable ones."""

    total: TopicSum
    shares: dict[str, Share]
    stale: tuple[StaleTopic, ...] = ()
