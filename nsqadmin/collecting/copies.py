"""The keepers of a node and the copies it keeps: requested only while somebody looks at the node."""

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from nsqadmin.collecting.known import Known
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.copies import CarriedCopies
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.nsqd_api import NsqdApi

# An open page reloads every two seconds, and several may be open.
_AGE_S: Final = 1.0
_PATIENCE_S: Final = 0.5
_FORGET_S: Final = 30.0


@dataclass(slots=True)
class _Seen:
    task: asyncio.Task[None]
    at_s: float
    found: CarriedCopies | None = None


class NodeCopies:
    """``/carried`` of nodes. The original's nsqd has none. A node that is silent is not asked."""

    def __init__(self, http: ClusterHttp, known: Known) -> None:
        self._http = http
        self._known = known
        self._seen: dict[str, _Seen] = {}

    async def of(self, address: str) -> CarriedCopies | None:
        """Return the node's last answer; None if it has not answered."""
        now = time.monotonic()
        for name in [name for name, one in self._seen.items() if now - one.at_s > _FORGET_S]:
            if self._seen[name].task.done():
                del self._seen[name]
        member = self._known.member(address)
        if member is None or not member.answers:
            return None
        seen = self._seen.get(address)
        if seen is None or (seen.task.done() and now - seen.at_s > _AGE_S):
            task = self._known.collector.work.start(self._ask(address, member.asked_at), "copies")
            seen = self._seen[address] = _Seen(task, now, seen.found if seen is not None else None)
        await asyncio.wait({seen.task}, timeout=_PATIENCE_S)
        return seen.found

    async def _ask(self, address: str, asked_at: str) -> None:
        try:
            found = await NsqdApi(self._http, asked_at).carried()
        except NodeError:
            # The question for figures notices whether the node answers.
            return
        self._seen[address].found = found

    def address_of(self, identity: str) -> str:
        """Return the address of the node with the data path *identity*; empty if it is not listed."""
        members = (*self._known.membership.members.values(), *self._known.membership.unlisted.values())
        return next(
            (
                one.address
                for one in members
                if one.producer is not None and one.producer.identity == identity
            ),
            "",
        )
