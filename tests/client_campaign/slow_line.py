"""A line with a limited number of bytes a second in each direction."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.peers import served

_PIECE = 4096


@asynccontextmanager
async def slow_line(host: str, port: int, bytes_a_second: float) -> AsyncIterator[str]:
    """Yield the address of the line's near end."""

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
        with suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(host, port, limit=_PIECE)
            try:
                await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))
            finally:
                far_writer.close()  # also when both were cancelled before they had begun

    async with served(accept, limit=_PIECE) as address:
        yield address
