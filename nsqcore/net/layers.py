"""What client and nsqd have negotiated lies between a connection and its socket, on either side.

A layer is the protocol of the transport below it, and the transport of the protocol above it. A connection
without layers therefore needs no code for them.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final, cast

from nsqcore.wire.compression import Codec, CorruptStream

# What is decompressed before others have their turn: about what an uncompressed read brings.
_READ_AT_ONCE: Final = 256 << 10


class Layer(asyncio.Transport, asyncio.Protocol):
    """Passes everything on, both ways; its kinds change the bytes."""

    def __init__(self, below: asyncio.Transport, above: asyncio.Protocol) -> None:
        """Take the place of *above*, which hears through this layer from now on."""
        super().__init__()
        self._below = below
        self._above = above
        # Why this layer ended the connection, for the log.
        self._error: Exception | None = None
        below.set_protocol(self)

    # --- the protocol of what is below ---

    def eof_received(self) -> bool | None:
        return self._above.eof_received()

    def pause_writing(self) -> None:
        self._above.pause_writing()

    def resume_writing(self) -> None:
        self._above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._above.connection_lost(exc or self._error)

    # --- the transport of what is above ---

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._above = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._above

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._below.resume_reading()

    def is_reading(self) -> bool:
        return self._below.is_reading()

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def close(self) -> None:
        self._below.close()

    def abort(self) -> None:
        self._below.abort()


class Compressed(Layer):
    """Snappy or deflate."""

    def __init__(self, below: asyncio.Transport, above: asyncio.Protocol, codec: Codec) -> None:
        super().__init__(below, above)
        self._codec = codec
        self._loop = asyncio.get_running_loop()
        # There is more to decompress; nothing is read from below until that is done.
        self._behind = False
        # The one above wants nothing now.
        self._paused = False
        self._ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._below.write(self._codec.compress(bytes(data)))

    def data_received(self, data: bytes) -> None:
        self._codec.feed(data)
        if not self._behind:
            self._decompress()

    def eof_received(self) -> bool | None:
        self._ended = True
        # What was decompressed too late would be lost otherwise.
        return True if self._behind else self._above.eof_received()

    def pause_reading(self) -> None:
        self._paused = True
        self._wait()

    def resume_reading(self) -> None:
        self._paused = False
        if self._behind:
            self._loop.call_soon(self._decompress)

    def is_reading(self) -> bool:
        return not self._paused and not self.is_closing()

    def _wait(self) -> None:
        self._behind = True
        self._below.pause_reading()

    def _decompress(self) -> None:
        left = _READ_AT_ONCE
        try:
            while not self._paused and not self._below.is_closing():
                if left <= 0:
                    self._wait()
                    self._loop.call_soon(self._decompress)
                    return
                piece = self._codec.read()
                if not piece:
                    self._caught_up()
                    return
                left -= len(piece)
                self._above.data_received(piece)
        except CorruptStream as error:
            self._error = error
            self._below.abort()

    def _caught_up(self) -> None:
        if self._behind:
            self._behind = False
            self._below.resume_reading()
            if self._ended and not self._above.eof_received():
                self._below.close()  # it was kept open for what was still to be decompressed
