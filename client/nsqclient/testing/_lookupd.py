"""An nsqlookupd in memory that names one nsqd, so that programs which ask nsqlookupd are tested unchanged."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from nsqclient.wire.address import split_address

_PATHS: Final = frozenset(("/lookup", "/lookup/producers", "/nodes"))


class MemoryLookupd:
    """Answers over HTTP that *nsqd* has every topic; *wait* is awaited before each answer."""

    def __init__(self, nsqd: str, wait: Callable[[], Awaitable[object]]) -> None:
        host, port = split_address(nsqd)
        self._producer = {
            "broadcast_address": host,
            "hostname": host,
            "remote_address": nsqd,
            "tcp_port": port,
            "http_port": port,
            "version": "1.3.0",
        }
        self._wait = wait
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Listen, and return the address."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
                head = await reader.readuntil(b"\r\n\r\n")
                await self._wait()
                writer.write(self._answer(head))
                await writer.drain()
        finally:
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        words = head.split(maxsplit=2)
        path = words[1].decode(errors="replace").partition("?")[0] if len(words) > 1 else ""
        status = "404 Not Found"
        answer: dict[str, object] = {"message": "NOT_FOUND"}
        if path in _PATHS:
            status, answer = "200 OK", {"channels": [], "producers": [self._producer]}
        body = json.dumps(answer).encode()
        lines = (
            f"HTTP/1.1 {status}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        return "\r\n".join((*lines, "", "")).encode() + body
