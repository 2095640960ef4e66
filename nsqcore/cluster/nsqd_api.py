"""Typed calls to the HTTP port of one nsqd."""

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from http import HTTPStatus
from typing import Final

from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.http import ClusterHttp, Params, blaming
from nsqcore.cluster.models import NodeInfo, NodePolicies, NodeStats, read_stats
from nsqcore.cluster.numbers import int64
from nsqcore.cluster.replication import NodeReplication, read_replication

STATS: Final = "/stats"
_REPLICATION: Final = "/replication"


def stats_params(*, topic: str = "", channel: str = "", include_clients: bool = True) -> Params:
    """Return the arguments of ``/stats`` for the wanted parts."""
    params = [("format", "json")]
    if topic:
        params.append(("topic", topic))
    if channel:
        params.append(("channel", channel))
    if not include_clients:
        params.append(("include_clients", "false"))
    return params


class NsqdApi:
    """The HTTP side of the nsqd at ``address`` (``host:port``)."""

    def __init__(self, http: ClusterHttp, address: str) -> None:
        self._http = http
        self.address = address

    async def info(self) -> NodeInfo:
        return await self._http.get(self.address, "/info", (), NodeInfo.from_json)

    async def stats(self, *, topic: str = "", channel: str = "", include_clients: bool = True) -> NodeStats:
        """Return the statistics of all topics, or of one topic, or of one channel of it."""
        params = stats_params(topic=topic, channel=channel, include_clients=include_clients)
        body = await self._http.fetch(self.address, STATS, params)
        return self.read_stats(body, params)

    def stats_body(self, params: Params) -> AbstractAsyncContextManager[bytes]:
        """Return ``/stats`` unparsed, so that a large answer can be parsed in another thread.

        The number of answers in memory is limited; this one counts until the context is left.
        """
        return self._http.answer(self.address, STATS, params)

    def read_stats(self, body: bytes, params: Params) -> NodeStats:
        """Parse the answer of :meth:`stats_body`."""
        with self.blamed(params):
            return read_stats(body)

    def blamed(self, params: Params) -> AbstractContextManager[None]:
        """Convert an error that the node's statistics cause in the block to a NodeError with its name."""
        return blaming(self.address, STATS, params)

    async def is_draining(self) -> bool:
        """Whether the node is draining: refusing publishes to become empty; False if it knows no draining."""
        try:
            await self._http.fetch(self.address, "/ready", ())
        except NodeError as error:
            if error.unreachable:
                raise
            return error.status == HTTPStatus.SERVICE_UNAVAILABLE and "draining" in error.reason
        return False

    async def drain_remaining(self) -> int:
        """Return the number of pending messages of a draining node."""
        return await self._http.get(self.address, "/drain", (), lambda answer: int64(answer["remaining"]))

    async def drain(self, *, cancel: bool = False, grace_ms: int = 0) -> None:
        """Let the node refuse publishes after *grace_ms* and become empty; *cancel* ends the drain."""
        argument = ("cancel", "true") if cancel else ("grace", str(grace_ms))
        await self._http.post(self.address, "/drain", [argument])

    async def policies(self, *, topic: str = "", channel: str = "") -> NodePolicies:
        """Return the policies of the node and, with *topic*, those in force for it or its channel."""
        asked = [(name, value) for name, value in (("topic", topic), ("channel", channel)) if value]
        return await self._http.get(self.address, "/policies", asked, NodePolicies.from_json)

    async def put_policies(
        self, content: bytes, *, name: str = "", apply: bool = False, dry: bool = False
    ) -> None:
        """Set the policy *name*, or without a name all policies that are not in the node's own file.

        With *dry* the node only checks them.
        """
        given = {"name": name, "apply": "true" * apply, "dry_run": "true" * dry}
        params = [(key, value) for key, value in given.items() if value]
        await self._http.put(self.address, "/policies", params, content)

    async def delete_policy(self, name: str, *, apply: bool = False) -> None:
        """Delete the policy *name*."""
        params = [("name", name), *([("apply", "true")] if apply else [])]
        await self._http.delete(self.address, "/policies", params)

    async def replication(self) -> NodeReplication:
        """Return the replicas of the node, and the copies on it."""
        body = await self._http.fetch(self.address, _REPLICATION, ())
        with blaming(self.address, _REPLICATION, ()):
            return read_replication(body)

    async def create_topic(self, topic: str) -> None:
        await self._topic("create", topic)

    async def delete_topic(self, topic: str) -> None:
        await self._topic("delete", topic)

    async def empty_topic(self, topic: str) -> None:
        await self._topic("empty", topic)

    async def pause_topic(self, topic: str) -> None:
        await self._topic("pause", topic)

    async def unpause_topic(self, topic: str) -> None:
        await self._topic("unpause", topic)

    async def create_channel(self, topic: str, channel: str) -> None:
        await self._channel("create", topic, channel)

    async def delete_channel(self, topic: str, channel: str) -> None:
        await self._channel("delete", topic, channel)

    async def empty_channel(self, topic: str, channel: str) -> None:
        await self._channel("empty", topic, channel)

    async def pause_channel(self, topic: str, channel: str) -> None:
        await self._channel("pause", topic, channel)

    async def unpause_channel(self, topic: str, channel: str) -> None:
        await self._channel("unpause", topic, channel)

    async def _topic(self, action: str, topic: str) -> None:
        await self._http.post(self.address, f"/topic/{action}", [("topic", topic)])

    async def _channel(self, action: str, topic: str, channel: str) -> None:
        params = [("topic", topic), ("channel", channel)]
        await self._http.post(self.address, f"/channel/{action}", params)
