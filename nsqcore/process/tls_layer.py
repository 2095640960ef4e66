"""The server side of TLS, as a layer between a connection and its socket."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from nsqclient.net.layers import Layer
from nsqcore.process.listen import shown_peer
from nsqcore.process.logs import Log
from nsqcore.process.tls import reason

HANDSHAKE_S: Final = 5.0
# Longer for HTTPS, as in other servers.
_HTTPS_HANDSHAKE_S: Final = 60.0
_PLAIN_HTTP: Final = b"This port speaks HTTPS: the address has to begin with https://\n"
_USE_HTTPS: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%b" % (len(_PLAIN_HTTP), _PLAIN_HTTP)
)
_HANDSHAKE_RECORD: Final = b"\x16"
# Decrypted bytes are passed on in one chunk, as a read without TLS would bring them: a record has at most
# 16 KiB, and each chunk costs the work that follows a read.
_READ_BYTES: Final = 256 << 10
# Filled and copied out within one call, so all connections share it.
_space: Final = memoryview(bytearray(_READ_BYTES))


class Tls(Layer):
    """The server side of TLS. Nothing may be written until the handshake is done.

    asyncio's own TLS ends the connection when a handshake fails. This layer sends the reason without TLS.
    """

    def __init__(
        self,
        below: asyncio.Transport,
        above: asyncio.Protocol,
        context: ssl.SSLContext,
        done: Callable[["Tls", str], None],
        patience_s: float = HANDSHAKE_S,
    ) -> None:
        """*done* is called when the handshake ends, with the reason if it failed, or "".

        After a failure *above* uses the transport below directly again.
        """
        super().__init__(below, above)
        self._received = ssl.MemoryBIO()
        self._to_send = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_side=True)
        self._done = done
        # The first bytes of the peer.
        self.first = b""
        self._open = False
        self._timer = asyncio.get_running_loop().call_later(patience_s, self._timed_out)

    # --- the handshake ---

    def _shake_hands(self, data: bytes) -> None:
        if not self.first:
            self.first = data
            if not data.startswith(_HANDSHAKE_RECORD):
                self._failed("tls: first record does not look like a TLS handshake")
                return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as error:
            # An alert tells the peer's library of the failure; send it first.
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
        have = 0
        try:
            # With a buffer, read() returns a number; its type stub says bytes.
            while count := cast("int", self._tls.read(_READ_BYTES - have, _space[have:])):
                have += count
                if have == _READ_BYTES:
                    self._above.data_received(bytes(_space))
                    have = 0
            self._pass_on(have)
            # An empty read is the peer's closing message. A client may wait for ours before it leaves.
            if not self._above.eof_received():
                self.close()
        except ssl.SSLWantReadError:
            self._pass_on(have)
            # Reading may produce data to send, such as a requested key update.
            self._flush()
        except ssl.SSLZeroReturnError:
            self._pass_on(have)
            self._above.eof_received()
        except ssl.SSLError as error:
            self._pass_on(have)
            self._error = OSError(reason(error))
            self._below.abort()

    def _pass_on(self, count: int) -> None:
        if count:
            self._above.data_received(bytes(_space[:count]))

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

    def can_write_eof(self) -> bool:
        """Say no: the closing message of TLS, which close() sends, is the end for the client."""
        return False

    def close(self) -> None:
        if self._open and not self.is_closing():
            # Send the closing message without waiting for the peer's.
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
        super().close()

    def _flush(self) -> None:
        if self._to_send.pending:
            self._below.write(self._to_send.read())


class Handshake(asyncio.Protocol):
    """The TLS handshake of one client; then the connection belongs to the factory's protocol."""

    def __init__(
        self,
        kind: str,
        factory: Callable[[], asyncio.Protocol],
        log: Log,
        context: ssl.SSLContext,
        unfinished: "set[Handshake]",
    ) -> None:
        self._kind = kind
        self._factory = factory
        self._log = log
        self._context = context
        self._unfinished = unfinished
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._unfinished.add(self)
        Tls(self._transport, self, self._context, self._done, _HTTPS_HANDSHAKE_S)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._unfinished.discard(self)

    def abort(self) -> None:
        self._transport.abort()

    def _done(self, tls: Tls, why_not: str) -> None:
        if not why_not:
            self._unfinished.discard(self)
            protocol = self._factory()
            tls.set_protocol(protocol)
            protocol.connection_made(tls)
            return
        if tls.first[:1].isalpha():
            why_not = "plain HTTP"
            self._transport.write(_USE_HTTPS)
        elif why_not == "EOF":
            why_not = "the client closed the connection, as one that refuses the certificate does"
        if tls.first:
            peer = shown_peer(self._transport.get_extra_info("peername"))
            self._log.warning("%s: [%s] handshake failed - %s", self._kind, peer, why_not)
        self._transport.close()
