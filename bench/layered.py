"""Connections under TLS, snappy or deflate, with the methods of a socket, so that every load can use them.

Batches that are published repeatedly are compressed once, before the clock starts, so that the load costs as
little as possible compared with the server.
"""

import atexit
import json
import shutil
import socket
import ssl
import tempfile
import zlib
from functools import cache
from pathlib import Path
from typing import Final, Protocol

from bench.load import Address, LoadError, expect_ok, handshake, open_socket
from nsqclient.wire.compression import SNAPPY_STREAM_HEADER, Deflate, Snappy

LAYERS: Final = ("tls", "snappy", "deflate")
DEFLATE_LEVEL: Final = 6
_READ: Final = 256 << 10


class Codec(Protocol):
    def compress(self, data: bytes) -> bytes: ...
    def feed(self, data: bytes) -> None: ...
    def read(self) -> bytes: ...


class _Tls:
    """The client side of TLS as a codec."""

    def __init__(self, conn: socket.socket) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send)
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                conn.sendall(self._to_send.read())
                self.feed(conn.recv(_READ))
        conn.sendall(self._to_send.read())

    def compress(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._to_send.read()

    def feed(self, data: bytes) -> None:
        self._received.write(data)

    def read(self) -> bytes:
        try:
            return self._tls.read(_READ)
        except ssl.SSLWantReadError:
            return b""


class _Deflate(Deflate):
    """Every write ends in a full flush, so it does not depend on earlier data and can be sent at any time."""

    def compress(self, data: bytes) -> bytes:
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_FULL_FLUSH)


class Layered:
    """A connection whose bytes go through a codec, with the methods of a socket that the loads use."""

    def __init__(self, conn: socket.socket, layer: str) -> None:
        self.conn = conn
        self._layer = layer
        self._codec: Codec = (
            _Tls(conn) if layer == "tls" else Snappy() if layer == "snappy" else _Deflate(DEFLATE_LEVEL)
        )
        self._plain = bytearray()
        if layer == "snappy":
            # The first prepared batch also begins with a header, which is allowed anywhere.
            conn.sendall(SNAPPY_STREAM_HEADER)

    def prepare(self, data: bytes) -> bytes:
        """Return what :meth:`send_prepared` takes for *data*; it may be sent several times."""
        return data if self._layer == "tls" else self._codec.compress(data)

    def send_prepared(self, data: bytes) -> None:
        if self._layer == "tls":
            data = self._codec.compress(data)
        self.conn.sendall(data)

    # --- as a socket ---

    def sendall(self, data: bytes) -> None:
        self.conn.sendall(self._codec.compress(bytes(data)))

    def recv(self, count: int, _flags: int = 0) -> bytes:
        """Return exactly *count* bytes, fewer only at the end of the stream."""
        while len(self._plain) < count and self._more():
            pass
        data = bytes(self._plain[:count])
        del self._plain[:count]
        return data

    def recv_into(self, view: memoryview) -> int:
        """Read at least one byte, 0 at the end. Raises BlockingIOError if none comes within SO_RCVTIMEO."""
        while not self._plain and self._more():
            pass
        count = min(len(view), len(self._plain))
        view[:count] = self._plain[:count]
        del self._plain[:count]
        return count

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        self.conn.setsockopt(level, option, value)

    def close(self) -> None:
        self.conn.close()

    def _more(self) -> bool:
        data = self.conn.recv(_READ)
        if not data:
            return False
        self._codec.feed(data)
        while piece := self._codec.read():
            self._plain += piece
        return True


class Prepared:
    """A publisher's connection that sends prepared batches."""

    def __init__(self, conn: Layered) -> None:
        self.sendall = conn.send_prepared
        self.recv = conn.recv


def connect(address: Address, layer: str) -> Layered:
    """Return a V2 connection under *layer*, ready for commands."""
    conn = open_socket(address)
    wishes: dict[str, object] = {"feature_negotiation": True}
    wishes |= {"tls_v1": True} if layer == "tls" else {layer: True, "deflate_level": DEFLATE_LEVEL}
    granted = json.loads(handshake(conn, wishes))
    if not granted["tls_v1" if layer == "tls" else layer]:
        raise LoadError(f"the server does not grant {layer}: {granted}")
    layered = Layered(conn, layer)
    expect_ok(layered)
    return layered


@cache
def tls_flags() -> tuple[str, ...]:
    """Return the flags of a server with a certificate that is made for this process."""
    import trustme

    folder = Path(tempfile.mkdtemp(prefix="nsq-bench-tls-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    issued = trustme.CA().issue_cert("localhost")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    return ("--tls-cert", str(certificate), "--tls-key", str(key), "--https-address", "127.0.0.1:0")
