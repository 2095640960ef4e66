"""One open connection to an nsqlookupd: it sends commands and returns their replies in order."""

import asyncio
from collections import deque
from typing import Final, cast

from nsqclient.wire.errors import ProtocolError
from nsqcore.lookup_protocol import MAGIC_V1, ReplyParser
from nsqcore.process.listen import set_keepalive

# The largest reply in bytes. Those of an nsqlookupd are much smaller; a larger one comes from something else.
MAX_REPLY: Final = 5 * 1024 * 1024


class LookupConnection(asyncio.Protocol):
    """A connection. ``changed`` is set when the peer hangs up, so that the owner notices immediately."""

    def __init__(self, changed: asyncio.Event) -> None:
        self.lost: OSError | None = None
        self._changed = changed
        self._parser = ReplyParser(MAX_REPLY)
        self._replies: deque[bytes] = deque()
        # Commands whose reply has not arrived yet.
        self._unanswered = 0
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport

    def send(self, commands: list[bytes]) -> None:
        """Send commands in one write; each has one reply."""
        if commands and self.lost is None:
            self._unanswered += len(commands)
            self._transport.write(b"".join(commands))

    async def reply(self, timeout_s: float) -> bytes:
        """Return the next reply. Raises OSError if the peer is gone or too slow."""
        if not self._replies:
            async with asyncio.timeout(timeout_s):
                await self._more()
        return self._replies.popleft()

    def close(self) -> None:
        self._transport.abort()

    async def _more(self) -> None:
        if self.lost is not None:
            raise self.lost
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if not self._replies:
            raise self.lost or ConnectionResetError("connection closed by the peer")

    # -- called by the event loop --------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        set_keepalive(transport.get_extra_info("socket"))
        self._transport.write(MAGIC_V1)

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        try:
            while (reply := self._parser.next_reply()) is not None:
                if not self._unanswered:
                    # Such replies would be taken for those of later commands, and could fill the memory.
                    raise ProtocolError("a reply came without a request")
                self._unanswered -= 1
                self._replies.append(reply)
        except ProtocolError as error:
            self.lost = ConnectionError(str(error))
            self._transport.abort()
        if self._replies:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.lost is None:
            closed = ConnectionResetError(str(exc) if exc else "connection closed by the peer")
            self.lost = exc if isinstance(exc, OSError) else closed
        self._wake()
        self._changed.set()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
