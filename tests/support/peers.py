"""A peer on a real socket that sends what a test tells it, for answers that no healthy daemon gives."""

import asyncio
import socket
import ssl
from asyncio.trsock import TransportSocket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from nsqclient.wire.frames import FRAME_RESPONSE, encode_frame

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(script: Script, limit: int = 1 << 16) -> AsyncIterator[str]:
    """Yield the address of a server that runs *script* with each connection; at the end none is left open."""
    serving: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        serving.add(task)
        try:
            await script(reader, writer)
        finally:
            writer.close()
            serving.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=limit)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
    finally:
        await _nobody_more(server.sockets[0])
        server.close()
        left = [task for task in serving if task is not None]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await _settled()


@asynccontextmanager
async def http_served(
    handler: Handler, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, int]]:
    """Yield host and port of an HTTP server; at the end no connection is left open."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    await runner.setup()
    with socket.create_server(("127.0.0.1", port)) as listener:
        await web.SockSite(runner, listener, ssl_context=tls).start()
        try:
            yield listener.getsockname()
        finally:
            await _nobody_more(listener)
            await runner.cleanup()


async def _nobody_more(listener: socket.socket | TransportSocket) -> None:
    """Accept no more connections, and let the handlers of those that were accepted begin.

    asyncio forgets a connection, without closing it, if its server is closed just when that was accepted;
    and a handler that is cancelled before it has begun cannot close its connection.
    """
    asyncio.get_running_loop().remove_reader(listener)
    await _settled()


async def _settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def scripted_peer(script: Script) -> AsyncIterator[str]:
    """Yield the address of a server that runs *script* with each connection and then closes it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The client may leave in the middle of the script.
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await script(reader, writer)

    async with served(serve) as address:
        yield address


async def answer_identify(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Do the server's part of the handshake, without negotiation."""
    assert await reader.readexactly(4) == b"  V2"
    assert await reader.readline() == b"IDENTIFY\n"
    await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
    writer.write(encode_frame(FRAME_RESPONSE, b"OK"))


async def read_published(reader: asyncio.StreamReader) -> bytes:
    """Return the body of the next PUB."""
    assert (await reader.readline()).startswith(b"PUB ")
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
