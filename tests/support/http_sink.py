"""An HTTP server in a thread that records requests and misbehaves as a test tells it."""

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Self

from aiohttp import web

from tests.support.peers import http_served

Behaviour = Callable[[int], Awaitable[web.StreamResponse | None]]
"""What to do with the n-th request: the answer, or None to drop the connection."""


@dataclass(frozen=True)
class Received:
    """One request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


async def well(_: int) -> web.StreamResponse:
    return web.Response()


class Unending(web.StreamResponse):
    """An answer with a status, and a body that does not end."""

    async def write_eof(self, data: bytes = b"") -> None:
        await self.write(b"x")
        await asyncio.sleep(3600)


async def unending(_: int) -> web.StreamResponse:
    return Unending(headers={"Content-Length": "1000"})


@dataclass
class HttpSink:
    """``received`` has all requests, ``taken`` the bodies that were answered with a 2xx."""

    behave: Behaviour = well
    received: list[Received] = field(default_factory=list)
    taken: list[bytes] = field(default_factory=list)
    port: int = 0
    tls: ssl.SSLContext | None = None
    _stop: Callable[[], object] = lambda: None
    _thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)))
        self._thread.start()
        assert started.wait(10), "the sink does not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        assert self._thread is not None
        self._thread.join(10)

    async def _serve(self, started: threading.Event) -> None:
        async with http_served(self._handle, self.port, self.tls) as (_, self.port):
            stopped = asyncio.Event()
            loop = asyncio.get_running_loop()
            self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
            started.set()
            await stopped.wait()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        self.received.append(Received(request.method, request.raw_path, dict(request.headers), body))
        answer = await self._answer(request)
        if answer is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if 200 <= answer.status < 300:
            self.taken.append(body)
        return answer

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse | None:
        return await self.behave(len(self.received))
