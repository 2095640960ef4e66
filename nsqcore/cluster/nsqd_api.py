"""Typed calls to the HTTP port of one nsqd."""

from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.models import NodeInfo, NodeStats


class NsqdApi:
    """The HTTP side of the nsqd at ``address`` (``host:port``)."""

    def __init__(self, http: ClusterHttp, address: str) -> None:
        self._http = http
        self.address = address

    async def info(self) -> NodeInfo:
        return await self._http.get(self.address, "/info", (), NodeInfo.from_json)

    async def stats(self, *, topic: str = "", channel: str = "", include_clients: bool = True) -> NodeStats:
        """Return the figures of all topics, or of one topic, or of one channel of it."""
        params = [("format", "json")]
        if topic:
            params.append(("topic", topic))
        if channel:
            params.append(("channel", channel))
        if not include_clients:
            params.append(("include_clients", "false"))
        return await self._http.get(self.address, "/stats", params, NodeStats.from_json)

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
