"""Who keeps copies of a node and whose it keeps: asked of the node only while somebody looks at it."""

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from nsqadmin.collecting.known import Known
from nsqcore.cluster.copies import CarriedCopies
from nsqcore.cluster.errors import NodeError
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.nsqd_api import NsqdApi

# An open page comes every two seconds, and several may be open.
_AGE_S: Final = 1.0
_PATIENCE_S: Final = 0.5
_FORGET_S: Final = 30.0


@dataclass(slots=True)
class _Seen:
    task: asyncio.Task[None]
    at_s: float
    found: CarriedCopies | None = None


class NodeCopies:
    """``/carried`` of nodes. One of the original has none; one that does not answer is not waited for."""

    def __init__(self, http: ClusterHttp, known: Known) -> None:
        self._http = http
        self._known = known
        self._seen: dict[str, _Seen] = {}

    async def of(self, address: str) -> CarriedCopies | None:
        """Return what the node said last; None where it has not said anything."""
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
            # Whether it answers at all is said by its figures.
            return
        self._seen[address].found = found

    def address_of(self, identity: str) -> str:
        """Return where the node is reached whose data path has that identity; empty when it is not listed."""
        members = (*self._known.membership.members.values(), *self._known.membership.unlisted.values())
        return next(
            (
                one.address
                for one in members
                if one.producer is not None and one.producer.data_path == identity
            ),
            "",
        )
