"""A Service of Kubernetes, simulated: a TCP proxy to the ready pods, whose list of endpoints may be late."""

import asyncio
import random
from collections import deque
from typing import Self

_PIECE = 65_536


class Service:
    """Connects each client to one of its endpoints; open connections stay when endpoints change."""

    def __init__(self, endpoints: list[int], *, late_s: float = 0.0) -> None:
        """*endpoints* are ports of this machine; a change of them arrives after *late_s*."""
        self._known = list(endpoints)
        self._endpoints = list(endpoints)
        self._late_s = late_s
        self._random = random.Random(7)
        self._changes: deque[asyncio.TimerHandle] = deque()
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for handle in self._changes:
            handle.cancel()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def remove(self, port: int) -> None:
        self._known.remove(port)
        self._publish()

    def add(self, port: int) -> None:
        self._known.append(port)
        self._publish()

    def _publish(self) -> None:
        endpoints = list(self._known)
        loop = asyncio.get_running_loop()
        self._changes.append(loop.call_later(self._late_s, self._apply, endpoints))

    def _apply(self, endpoints: list[int]) -> None:
        self._endpoints = endpoints

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._connections.discard(task)
            writer.transport.abort()

        task.add_done_callback(ended)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to = await asyncio.open_connection("127.0.0.1", self._random.choice(self._endpoints))
        except OSError:
            return  # the client sees that its connection ends
        try:
            there = asyncio.create_task(_copy(reader, to[1]))
            back = asyncio.create_task(_copy(to[0], writer))
            await asyncio.wait({there, back})
        finally:
            there.cancel()
            back.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
            to[1].transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until one side ends; its end is passed on."""
    try:
        while piece := await reader.read(_PIECE):
            # An end right behind the piece arrives with it, as without a proxy.
            await asyncio.sleep(0.001)
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()
