"""Reads the messages of one nsqd, page after page, and merges those of several."""

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncIterator, Sequence

import msgspec

from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.http import UNUSABLE, ClusterHttp, unusable
from nsqtools.cluster import ABSENT
from nsqtools.nsq_peek.formats import read_message, read_page
from nsqtools.nsq_peek.options import PeekOptions

_PATH = "/messages"
# The most messages in one answer; nsqd also limits its bytes.
_PAGE = 1000


class PageReader:
    """The position up to which one nsqd was read. An error ends a round; the next round continues there."""

    def __init__(self, http: ClusterHttp, address: str, options: PeekOptions) -> None:
        self.address = address
        self.error: NodeError | None = None
        self._http = http
        self._options = options
        self._position: str | None = options.start
        self._more = True
        self._page: deque[msgspec.Raw] = deque()

    @property
    def absent(self) -> bool:
        """Whether this nsqd does not have the topic or channel."""
        return self.error is not None and self.error.code in ABSENT

    @property
    def needs_a_page(self) -> bool:
        """Whether the next message has to be asked for."""
        return not self._page

    def start_round(self) -> None:
        """Request messages again, because new ones may exist."""
        self._more = True
        if self.absent:
            # When the topic appears, all of its messages are new.
            self._position = "earliest"
        self.error = None

    async def next(self) -> tuple[str | int, msgspec.Raw] | None:
        """The key by which messages are ordered, and the next message; None at the end and after an error."""
        try:
            while not self._page:
                if not self._more or self._position is None:
                    return None
                await self._ask(self._position)
            raw = self._page.popleft()
            try:
                message = read_message(raw)
            except UNUSABLE as error:
                raise unusable(self.address, _PATH, (), error) from error
        except NodeError as error:
            self.error, self._more = error, False
            return None
        if self._options.state == "deferred":
            return message.until, raw
        return -message.timestamp if self._options.reverse else message.timestamp, raw

    async def _ask(self, place: str) -> None:
        options = self._options
        wanted = {
            "topic": options.topic,
            "channel": options.channel,
            "from": place,
            "direction": "back" if options.reverse else "forward",
            "limit": str(min(options.n or _PAGE, _PAGE)),
            "state": options.state,
            "contains": options.contains,
            "json": options.json_field,
        }
        params = [(name, value) for name, value in wanted.items() if value]
        answer = await self._http.fetch(self.address, _PATH, params)
        try:
            page = read_page(answer)
        except UNUSABLE as error:
            raise unusable(self.address, _PATH, params, error) from error
        self._page.extend(page.messages)
        self._position, self._more = page.next, page.more


async def merged(readers: Sequence[PageReader]) -> AsyncIterator[tuple[PageReader, msgspec.Raw]]:
    """The messages of all nsqd, ordered by the time of publishing, or by that at which they are due."""
    heads = []
    for place, head in enumerate(await asyncio.gather(*(reader.next() for reader in readers))):
        if head is not None:
            heads.append((head[0], place, head[1]))
    heapq.heapify(heads)
    while heads:
        _, place, raw = heads[0]
        yield readers[place], raw
        following = await readers[place].next()
        if following is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, (following[0], place, following[1]))
