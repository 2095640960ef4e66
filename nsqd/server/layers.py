"""What a client negotiates lies between its connection and the socket.

A layer is the protocol of the transport below it and the transport of the protocol above it, so that a
connection without layers knows nothing of them and pays nothing for them.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, cast

from nsqcore.service.listen import shown_peer
from nsqcore.wire.compression import Codec, CorruptStream
from nsqd.server.tls import reason

# What is decompressed before others have their turn: about what an uncompressed read brings.
_READ_AT_ONCE: Final = 256 << 10
HANDSHAKE_S: Final = 5.0
_HANDSHAKE_RECORD: Final = b"\x16"
_RECORD: Final = 16_384


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
            if self._ended:
                self._above.eof_received()


class Tls(Layer):
    """The server's side of TLS. Until the handshake is done nothing is to be written.

    The library's own TLS ends the connection when a handshake fails; NSQ's clients are told why, without TLS.
    """

    def __init__(
        self,
        below: asyncio.Transport,
        above: asyncio.Protocol,
        context: ssl.SSLContext,
        done: Callable[["Tls", str], None],
    ) -> None:
        """*done* is told when the handshake ends: why it failed, or nothing.

        After a failure *above* has the transport below for itself again.
        """
        super().__init__(below, above)
        self._received = ssl.MemoryBIO()
        self._to_send = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_side=True)
        self._done = done
        self._begun = False
        self._open = False
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._timed_out)

    # --- the handshake ---

    def _shake_hands(self, data: bytes) -> None:
        if not self._begun:
            self._begun = True
            if not data.startswith(_HANDSHAKE_RECORD):
                self._failed("tls: first record does not look like a TLS handshake")
                return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as error:
            # The peer's library is told by an alert, which comes first.
            self._flush()
            self._failed(reason(error))
        else:
            self._flush()
            self._timer.cancel()
            self._open = True
            self._done(self, "")

    def _timed_out(self) -> None:
        here, there = (shown_peer(self._below.get_extra_info(name)) for name in ("sockname", "peername"))
        self._failed(f"read tcp {here}->{there}: i/o timeout")

    def _failed(self, why: str) -> None:
        self._timer.cancel()
        self._below.set_protocol(self._above)
        self._done(self, why)

    # --- the protocol of what is below ---

    def data_received(self, data: bytes) -> None:
        self._received.write(data)
        if not self._open:
            self._shake_hands(data)
            if not self._open:
                return
        try:
            while piece := self._tls.read(_RECORD):
                self._above.data_received(piece)
        except ssl.SSLWantReadError:
            # Reading may have made something to be said: keys are changed on request.
            self._flush()
        except ssl.SSLZeroReturnError:
            self._above.eof_received()
        except ssl.SSLError as error:
            self._error = OSError(reason(error))
            self._below.abort()

    def eof_received(self) -> bool | None:
        if not self._open:
            self._failed("EOF")
        return self._above.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    # --- the transport of what is above ---

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        if name == "sslcontext":
            return self._tls.context
        if name == "peercert":
            return self._tls.getpeercert()
        return super().get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not data or self.is_closing():
            return
        self._tls.write(data)
        self._flush()

    def close(self) -> None:
        if self._open and not self.is_closing():
            # We say goodbye and do not wait for the peer's.
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
        super().close()

    def _flush(self) -> None:
        if self._to_send.pending:
            self._below.write(self._to_send.read())
