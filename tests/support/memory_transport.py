"""A connection in memory, so that a test knows when everything that was sent has been handled."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

# After so many silent rounds of the loop nothing more is to come, because no answer needs a timer.
QUIET_ROUNDS = 12


class MemoryTransport(asyncio.Transport):
    """A client's end of a connection; bytes sent to it go to *heard*, or are collected in ``received``."""

    def __init__(
        self, heard: Callable[[bytes], None] | None = None, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """*loop* is needed if the connection is closed while no loop runs."""
        super().__init__()
        self.received = b""
        self.reading = True
        self._heard = heard or self._collect
        self._loop = loop
        self._protocol: asyncio.BaseProtocol
        self._closing = False

    def connect(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    def say(self, data: bytes) -> None:
        if not self._closing:
            assert isinstance(self._protocol, asyncio.Protocol)
            self._protocol.data_received(data)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in {"peername", "sockname"} else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self._heard(bytes(data))

    def _collect(self, data: bytes) -> None:
        self.received += data

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def is_reading(self) -> bool:
        return self.reading and not self._closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            loop = self._loop or asyncio.get_running_loop()
            loop.call_soon(lambda: self._protocol.connection_lost(None))

    def abort(self) -> None:
        self.close()


async def quiet(transport: MemoryTransport) -> None:
    """Return when nothing more is sent."""
    rounds = 0
    while rounds < QUIET_ROUNDS:
        before = len(transport.received)
        await asyncio.sleep(0)
        rounds = rounds + 1 if len(transport.received) == before else 0
