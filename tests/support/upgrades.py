"""The client's side of TLS and compression after IDENTIFY, for the conversations of :mod:`wire`."""

import ssl
from typing import Any

from nsqclient.wire.compression import Codec, Deflate, Snappy
from tests.support.wire import Wire


class CompressedSocket:
    """A socket whose bytes go through a codec; *early* are bytes received before it was created."""

    def __init__(self, below: Any, codec: Codec, early: bytes) -> None:
        self._below = below
        self._codec = codec
        codec.feed(early)

    def sendall(self, data: bytes) -> None:
        self._below.sendall(self._codec.compress(data))

    def recv(self, _size: int) -> bytes:
        while not (piece := self._codec.read()):
            received = self._below.recv(65536)
            if not received:
                return b""
            self._codec.feed(received)
        return piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


def compress(wire: Wire, compression: str, level: int = 6) -> None:
    """Continue with deflate or snappy, as granted, and read OK."""
    codec = Deflate(level) if compression == "deflate" else Snappy()
    early, wire._unread = wire._unread, b""
    wire.socket = CompressedSocket(wire.socket, codec, early)  # type: ignore[assignment] # acts as one
    wire.ok()


def start_tls(wire: Wire, context: ssl.SSLContext) -> None:
    """Continue in TLS and read OK."""
    assert not wire._unread
    wire.socket = context.wrap_socket(wire.socket, server_hostname="127.0.0.1")
    wire.ok()


def upgrade(wire: Wire, *, tls: ssl.SSLContext | None = None, compression: str = "", **settings: Any) -> None:
    """Negotiate and switch on everything that is asked for."""
    wishes = {compression: True} if compression else {}
    granted = wire.identify(tls_v1=tls is not None, **wishes, **settings)
    assert granted["tls_v1"] is (tls is not None)
    if tls is not None:
        start_tls(wire, tls)
    if compression:
        assert granted[compression] is True
        compress(wire, compression, granted["deflate_level"])
