"""GET /replication, and POST and GET /decommission: all logs of this node are transferred to others."""

import re
from typing import Final

from nsqcore.http.api import ApiError, Request, Response, json_reply
from nsqd.replication.shown import NO_DECOMMISSION
from nsqd.server.replication.service import Replication

_ADDRESS: Final = re.compile(r"[^\s:/?#]+:\d{1,5}|\[[0-9a-fA-F:.]+\]:\d{1,5}")


class ReplicationApi:
    """See the module."""

    def __init__(self, replication: Replication) -> None:
        self._replication = replication

    async def get(self, _request: Request) -> Response:
        """The replicas of this node, and the copies here."""
        return json_reply(self._replication.to_json())

    async def decommission(self, request: Request) -> Response:
        """Transfer all logs to other nodes; with ``cancel=true`` stop that.

        ``target`` is the address of the target; ``fewer_copies=true`` accepts fewer replicas afterwards.
        """
        to = request.query.get("target", "")
        if to and not _ADDRESS.fullmatch(to):
            raise ApiError(400, "INVALID_TARGET")
        node = self._replication.node
        if node is None:
            raise ApiError(409, "NO_CLUSTER_SECRET")
        if request.flag("cancel"):
            node.cancel_decommission()
        else:
            node.decommission(to, fewer_copies=request.flag("fewer_copies"))
        return json_reply(node.decommission_state())

    async def decommission_state(self, _request: Request) -> Response:
        """The progress of the transfer, and the reason why it waits."""
        node = self._replication.node
        return json_reply(NO_DECOMMISSION if node is None else node.decommission_state())
