"""Publishes to one of several nsqd, over one connection with many publishes under way."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Self

from nsqcore.client.connection import Connection, ProducerListener, connect, split_address
from nsqcore.client.options import ClientOptions
from nsqcore.wire import commands
from nsqcore.wire.errors import E_DPUB_FAILED, E_MPUB_FAILED, E_PUB_FAILED, ProtocolError

log = logging.getLogger("nsqcore.client")

# Pause between two rounds over all addresses, doubling up to the limit.
FIRST_RETRY_SECONDS: Final = 0.1
LAST_RETRY_SECONDS: Final = 2.0

# The node cannot take it (its disk is full, it is leaving), another one may.
_NODE_FAILED: Final = frozenset({E_PUB_FAILED, E_MPUB_FAILED, E_DPUB_FAILED})


class Producer:
    """Publishes to the first of its nsqd that takes the message, and stays with that one.

    A publish returns when nsqd has said OK. When the connection breaks before that, the message is sent
    again, to the next address or after a reconnect, so it may then be there twice. With ``retry_seconds``
    it keeps trying that long before it raises; otherwise each address is tried once. A message that nsqd
    refuses as such (``ProtocolError``: bad topic, too big) is never tried again.
    """

    def __init__(
        self,
        *nsqd_addresses: str,
        options: ClientOptions | None = None,
        retry_seconds: float = 0,
    ) -> None:
        if not nsqd_addresses:
            raise ValueError("a producer needs at least one nsqd address")
        for address in nsqd_addresses:
            split_address(address)
        self.options = options or ClientOptions()
        self._addresses = list(nsqd_addresses)
        self._current = 0  # index of the address in use
        self._retry_seconds = retry_seconds
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def nsqd_address(self) -> str:
        """The nsqd that gets the next message."""
        return self._addresses[self._current]

    async def publish(self, topic: str, body: bytes) -> None:
        """Publish one message."""
        await self._publish(commands.pub(topic, body))

    async def multi_publish(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish several messages, all or none."""
        await self._publish(commands.mpub(topic, bodies))

    async def deferred_publish(self, topic: str, body: bytes, delay: float) -> None:
        """Publish one message that is delivered after *delay* seconds at the earliest."""
        await self._publish(commands.dpub(topic, body, round(delay * 1000)))

    async def close(self) -> None:
        """End the connection; publishes still under way fail."""
        self._closed = True
        if self._connection is not None:
            await self._connection.close()

    async def _publish(self, command: bytes) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._retry_seconds
        pause = FIRST_RETRY_SECONDS
        while True:
            # One more than there are addresses: the first may be spent on a connection that was dead already.
            for _ in range(len(self._addresses) + 1):
                used = self._current
                try:
                    await self._send(command)
                    return
                except (OSError, ProtocolError) as error:
                    if isinstance(error, ProtocolError) and error.code not in _NODE_FAILED:
                        raise
                    failure = error
                    self._move_on(used)
            if self._closed or loop.time() + pause > give_up_at:
                raise failure
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAST_RETRY_SECONDS)

    async def _send(self, command: bytes) -> None:
        connection = self._connection
        if connection is None or connection.is_closed:
            connection = await self._connect()
        await connection.writable()
        await connection.request(command)

    async def _connect(self) -> Connection:
        async with self._connecting:  # of many publishes only one connects, the others use its connection
            if self._closed:
                raise ConnectionError("the producer is closed")
            if self._connection is None or self._connection.is_closed:
                self._connection = None
                self._connection = await connect(self.nsqd_address, self.options, ProducerListener())
            return self._connection

    def _move_on(self, failed: int) -> None:
        # Of many publishes that failed together only the first moves, or they would skip addresses.
        if failed == self._current and len(self._addresses) > 1:
            self._current = (failed + 1) % len(self._addresses)
            log.info("publishing to %s from now on", self.nsqd_address)
