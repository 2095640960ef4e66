"""Typed calls to the endpoints of nsqd for single messages, which the original does not have."""

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from nsqcore.cluster.http import UNUSABLE, ClusterHttp, Params, unusable
from nsqcore.cluster.listed_messages import ListedMessages

# The arguments that say which messages are meant: an id, or a filter.
Which = Mapping[str, str]

_MESSAGES: Final = "/messages"


_decode = msgspec.json.Decoder(ListedMessages).decode


class NsqdMessages:
    """The messages of the nsqd at ``address`` (``host:port``)."""

    def __init__(self, http: ClusterHttp, address: str) -> None:
        self._http = http
        self.address = address

    async def look(self, wanted: Which) -> ListedMessages:
        """Return an answer of ``/messages``; this changes no state."""
        params = _params(wanted)
        body = await self._http.fetch(self.address, _MESSAGES, params)
        try:
            return _decode(body)
        except UNUSABLE as error:
            raise unusable(self.address, _MESSAGES, params, error) from error

    async def handle(self, action: str, wanted: Which) -> Mapping[str, Any]:
        """Finish, requeue, send or cancel messages of a channel, or count them."""
        return await self._http.post_for(
            self.address, f"/message/{action}", _params(wanted), lambda answer: answer
        )

    async def send_back(self, wanted: Which) -> Mapping[str, Any]:
        """Send dead letters back to the channels they came from, or count them."""
        return await self._http.post_for(
            self.address, "/dead_letters/send_back", _params(wanted), lambda answer: answer
        )

    async def seek(self, topic: str, channel: str, to: str) -> int:
        """Let a channel owe all messages from a place on; return their number."""
        params = [("topic", topic), ("channel", channel), ("to", to)]
        return await self._http.post_for(
            self.address, "/channel/seek", params, lambda answer: int(answer["owed"])
        )

    async def publish(
        self, topic: str, content: bytes, *, headers: Mapping[str, str] | None = None, defer_ms: int = 0
    ) -> None:
        """Publish one message, by ``/pub_ext`` only if it has headers, because not every nsqd knows them."""
        params = [("topic", topic)]
        if defer_ms:
            params.append(("defer", str(defer_ms)))
        if headers:
            params.append(("ext", json.dumps(headers)))
        path = "/pub_ext" if headers else "/pub"
        await self._http.post(self.address, path, params, content)


def _params(wanted: Which) -> Params:
    return [(name, value) for name, value in wanted.items() if value]
