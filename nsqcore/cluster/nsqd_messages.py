"""Typed calls to the endpoints of nsqd for single messages, which the original does not have."""

import json
from collections.abc import Mapping
from typing import Final

import msgspec

from nsqcore.cluster.http import ClusterHttp, Params, blaming
from nsqcore.cluster.listed_messages import ListedMessages
from nsqcore.cluster.numbers import Int64, int64

# The arguments that select messages: an id, or a filter.
MessageFilter = Mapping[str, str]

_MESSAGES: Final = "/messages"


_decode = msgspec.json.Decoder(ListedMessages).decode


class HandledMessages(msgspec.Struct, frozen=True):
    """How many messages were handled, or would be; *next* is where to continue if there are *more*."""

    count: Int64
    more: bool = False
    next: str = ""


class SentBack(msgspec.Struct, frozen=True):
    """How many dead letters were found and sent, and how many were left, by reason; *next* as above."""

    found: Int64
    sent: Int64
    left: dict[str, Int64]
    next: str | None = None


class NsqdMessages:
    """The messages of the nsqd at ``address`` (``host:port``)."""

    def __init__(self, http: ClusterHttp, address: str) -> None:
        self._http = http
        self.address = address

    async def browse(self, wanted: MessageFilter) -> ListedMessages:
        """Return an answer of ``/messages``; this changes no state."""
        params = _params(wanted)
        body = await self._http.fetch(self.address, _MESSAGES, params)
        with blaming(self.address, _MESSAGES, params):
            return _decode(body)

    async def count_from(self, topic: str, channel: str, sequence: int) -> int:
        """Return how many of the stored messages from *sequence* on are for *channel*."""
        params = [("topic", topic), ("channel", channel)]
        return await self._http.get(
            self.address,
            "/log/bounds",
            params,
            lambda answer: sum(
                max(0, int64(end) - max(int64(start), sequence)) for start, end in answer["extents"]
            ),
        )

    async def handle(self, action: str, wanted: MessageFilter) -> HandledMessages:
        """Finish, requeue, send or cancel messages of a channel, or count them."""
        return await self._http.post_for(
            self.address,
            f"/message/{action}",
            _params(wanted),
            lambda answer: msgspec.convert(answer, HandledMessages),
        )

    async def send_back(self, wanted: MessageFilter) -> SentBack:
        """Send dead letters back to the channels they came from, or count them."""
        return await self._http.post_for(
            self.address,
            "/dead_letters/send_back",
            _params(wanted),
            lambda answer: msgspec.convert(answer, SentBack),
        )

    async def seek(self, topic: str, channel: str, to: str) -> int:
        """Make all messages from a position on pending for a channel; return their number."""
        params = [("topic", topic), ("channel", channel), ("to", to)]
        return await self._http.post_for(
            self.address, "/channel/seek", params, lambda answer: int64(answer["pending"])
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


def _params(wanted: MessageFilter) -> Params:
    return [(name, value) for name, value in wanted.items() if value]
