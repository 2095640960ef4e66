"""The replicas of a node and the copies on it: requested only while a reader looks at the node."""

import asyncio
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from nsqadmin.collecting.known import Known
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.nsqd_api import NsqdApi
from nsqcore.cluster.replication import NodeReplication

# An open page reloads every two seconds, and several may be open.
_AGE_S: Final = 1.0
_PATIENCE_S: Final = 0.5
_FORGET_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class ReplicationView:
    """The replication of a node; ``unknown`` is why it is not known.

    Both are empty for a node that has no replication, such as the original nsqd.
    """

    status: NodeReplication | None = None
    unknown: str = ""


@dataclass(slots=True)
class _Entry:
    task: asyncio.Task[None]
    at_s: float
    view: ReplicationView


class NodeReplications:
    """``/replication`` of nodes. A node that is silent is not asked."""

    def __init__(self, http: ClusterHttp, known: Known) -> None:
        self._http = http
        self._known = known
        self._entries: dict[str, _Entry] = {}

    async def of(self, address: str) -> ReplicationView:
        """Return the node's last answer, or why there is none."""
        now = time.monotonic()
        for name in [name for name, one in self._entries.items() if now - one.at_s > _FORGET_S]:
            if self._entries[name].task.done():
                del self._entries[name]
        member = self._known.member(address)
        if member is None:
            return ReplicationView()
        if not member.answers:
            return ReplicationView(unknown=member.error.reason if member.error is not None else "")
        entry = self._entries.get(address)
        if entry is None or (entry.task.done() and now - entry.at_s > _AGE_S):
            task = self._known.collector.work.start(self._ask(address, member.asked_at), "replication")
            before = entry.view if entry is not None else ReplicationView(unknown="no answer yet")
            entry = self._entries[address] = _Entry(task, now, before)
        await asyncio.wait({entry.task}, timeout=_PATIENCE_S)
        return entry.view

    async def _ask(self, address: str, asked_at: str) -> None:
        try:
            view = ReplicationView(await NsqdApi(self._http, asked_at).replication())
        except NodeError as error:
            # The original's nsqd has no such page.
            missing = error.status == HTTPStatus.NOT_FOUND
            view = ReplicationView(unknown="" if missing else error.reason)
        self._entries[address].view = view

    def address_of(self, identity: str) -> str:
        """Return the HTTP address of the node with *identity*; empty if it is not known."""
        members = (*self._known.membership.members.values(), *self._known.membership.unlisted.values())
        return next(
            (one.address for one in members if identity and one.producer.identity == identity),
            "",
        )
