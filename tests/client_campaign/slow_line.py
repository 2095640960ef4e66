"""A line with a limited number of bytes a second in each direction."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_PIECE = 4096


@asynccontextmanager
async def slow_line(host: str, port: int, bytes_a_second: float) -> AsyncIterator[str]:
    """Yield the address of the line's near end."""
    ends: set[asyncio.Task[None]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                while piece := await reader.read(_PIECE):
                    await asyncio.sleep(len(piece) / bytes_a_second)
                    writer.write(piece)
                    await writer.drain()
        finally:
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port, limit=_PIECE)
        except OSError:
            writer.close()
            return
        for near, far in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(carry(near, far))
            ends.add(task)
            task.add_done_callback(ends.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=_PIECE)
    try:
        near_host, near_port = server.sockets[0].getsockname()
        yield f"{near_host}:{near_port}"
    finally:
        server.close()
        for task in list(ends):
            task.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
        # Connections are really closed in the next round of the loop.
        await asyncio.sleep(0)
