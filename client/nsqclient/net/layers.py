"""Layers that client and nsqd negotiate, between a connection and its socket; both sides use them.

A layer is the protocol of the transport below it, and the transport of the protocol above it. A connection
without layers therefore needs no code for them.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from nsqclient.wire.compression import MAX_CHUNK, Codec, CorruptStream

# How much is decompressed before other connections have their turn: about as much as an uncompressed read.
_READ_BYTES: Final = 256 << 10
# How long one connection may work on decompressed bytes before others have their turn: a few compressed bytes
# may be millions of commands, which would take seconds without a break.
_WORK_S: Final = 0.00025
_SMALLEST: Final = 1024
# Replaces the protocol above a layer that has ended. Two layers refer to each other, so they and the received
# bytes would stay until a garbage collection.
_NO_PROTOCOL: Final = asyncio.Protocol()


class Layer(asyncio.Transport, asyncio.Protocol):
    """Forwards all bytes and events in both directions; subclasses change the bytes."""

    def __init__(self, below: asyncio.Transport, above: asyncio.Protocol) -> None:
        """Take the place of *above* below it: *above* gets its events from this layer from now on."""
        super().__init__()
        self._below = below
        self._above = above
        # Why this layer ended the connection, for the log.
        self._error: Exception | None = None
        below.set_protocol(self)

    # --- the protocol of the transport below ---

    def eof_received(self) -> bool | None:
        return self._above.eof_received()

    def pause_writing(self) -> None:
        self._above.pause_writing()

    def resume_writing(self) -> None:
        self._above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        above, self._above = self._above, _NO_PROTOCOL
        above.connection_lost(exc or self._error)

    # --- the transport of the protocol above ---

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

    def can_write_eof(self) -> bool:
        return self._below.can_write_eof()

    def write_eof(self) -> None:
        self._below.write_eof()

    def close(self) -> None:
        self._below.close()

    def abort(self) -> None:
        self._below.abort()


class Compressed(Layer):
    """Snappy or deflate."""

    def __init__(
        self,
        below: asyncio.Transport,
        above: asyncio.Protocol,
        codec: Codec,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(below, above)
        self._codec = codec
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        # More is to be decompressed; nothing is read from below until that is done.
        self._has_more = False
        # Decompressing continues in the next round of the loop.
        self._scheduled = False
        # The size of each chunk for the protocol above, and the unsent part of a chunk.
        self._size = MAX_CHUNK
        self._remaining = memoryview(b"")
        # The protocol above has paused reading.
        self._paused = False
        self._ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._below.write(self._codec.compress(bytes(data)))

    def data_received(self, data: bytes) -> None:
        self._codec.feed(data)
        if not self._has_more:
            self._decompress()

    def eof_received(self) -> bool | None:
        self._ended = True
        # Otherwise bytes that are not decompressed yet would be lost.
        return True if self._has_more else self._above.eof_received()

    def pause_reading(self) -> None:
        self._paused = True
        self._wait()

    def resume_reading(self) -> None:
        self._paused = False
        if self._has_more:
            self._schedule()

    def is_reading(self) -> bool:
        return not self._paused and not self.is_closing()

    def _wait(self) -> None:
        self._has_more = True
        self._below.pause_reading()

    def _schedule(self) -> None:
        """Schedule it once, also for repeated requests: each call would take a share of every round."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._continue)

    def _continue(self) -> None:
        self._scheduled = False
        self._decompress()

    def _decompress(self) -> None:
        left = _READ_BYTES
        began = now = self._clock()
        try:
            while not self._paused and not self._below.is_closing():
                if left <= 0 or now - began >= _WORK_S:
                    self._wait()
                    self._schedule()
                    return
                piece = self._next_chunk()
                if not piece:
                    self._caught_up()
                    return
                left -= len(piece)
                before = now
                self._above.data_received(piece)
                now = self._clock()
                self._adapt(now - before)
        except CorruptStream as error:
            self._error = error
            self._below.abort()

    def _next_chunk(self) -> bytes:
        """The next bytes: as many as the protocol above is expected to handle within its budget."""
        if not self._remaining:
            piece = self._codec.read()
            if len(piece) <= self._size:
                return piece
            self._remaining = memoryview(piece)
        piece = bytes(self._remaining[: self._size])
        self._remaining = self._remaining[self._size :]
        return piece

    def _adapt(self, took_s: float) -> None:
        if took_s > _WORK_S:
            self._size = max(_SMALLEST, int(self._size * _WORK_S / took_s))
        elif took_s < _WORK_S / 4:
            self._size = min(MAX_CHUNK, 2 * self._size)

    def _caught_up(self) -> None:
        if self._has_more:
            self._has_more = False
            self._below.resume_reading()
            if self._ended and not self._above.eof_received():
                self._below.close()  # it stayed open for bytes still to be decompressed
