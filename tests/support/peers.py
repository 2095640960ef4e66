"""A peer on a real socket that sends what a test tells it, for answers that no healthy daemon gives."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from nsqclient.wire.frames import FRAME_RESPONSE, encode_frame

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def scripted_peer(script: Script) -> AsyncIterator[str]:
    """Yield the address of a server that runs *script* with each connection and then closes it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client left in the middle of the script
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
    finally:
        server.close()
        await server.wait_closed()


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
