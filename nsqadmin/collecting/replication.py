"""The replicas of a node and the copies on it: requested only while a page shows the node."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from nsqadmin.collecting.collector import Collector
from nsqadmin.collecting.shared import Shared
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.nsqd_api import NsqdApi
from nsqcore.cluster.replication import NodeReplication

# An open page reloads every two seconds, and several may be open.
_AGE_S: Final = 1.0
_PATIENCE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class ReplicationView:
    """The replication of a node; ``unknown`` is why it is not known.

    Both are empty for a node that has no replication, such as the original nsqd.
    """

    status: NodeReplication | None = None
    unknown: str = ""


class NodeReplications:
    """``/replication`` of nodes. An unreachable node gets no request."""

    def __init__(self, http: ClusterHttp, collector: Collector) -> None:
        self._http = http
        self._collector = collector
        self._membership = collector.membership
        self._shared: Shared[str, NodeReplication] = Shared(collector.work)

    async def of(self, address: str) -> ReplicationView:
        """Return the node's last answer, or why there is none."""
        member = self._membership.member(address)
        if member is None:
            return ReplicationView()
        nsqd = NsqdApi(self._http, member.request_address)
        found: NodeReplication | NodeError | None = member.error
        if member.answers:
            found = await self._shared.get(address, nsqd.replication, age_s=_AGE_S, patience_s=_PATIENCE_S)
        if isinstance(found, NodeError):
            # The original's nsqd has no such page.
            return ReplicationView(unknown="" if found.status == HTTPStatus.NOT_FOUND else found.reason)
        return ReplicationView(found, "" if found or not member.answers else "no answer yet")

    def address_of(self, identity: str) -> str:
        """Return the HTTP address of the node with *identity*; empty if it is not known."""
        members = (*self._membership.members.values(), *self._membership.unlisted.values())
        return next(
            (one.address for one in members if identity and one.producer.identity == identity),
            "",
        )
