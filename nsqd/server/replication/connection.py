"""Connections between nodes: bytes to and from a `PeerLink`."""

import asyncio
import hashlib
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from nsqcore.process.listen import set_keepalive, shown_peer
from nsqcore.process.logs import Log
from nsqcore.process.tls_layer import Tls
from nsqd.replication.frames import Refuse, StartTls
from nsqd.replication.framing import encode
from nsqd.replication.link import PeerLink
from nsqd.server.clock import now_ns

START_TLS: Final = encode(StartTls())
# The largest number of buffers that the system takes in one call.
_MAX_BUFFERS: Final = 1024


class Connections:
    """All connections to other nodes; accepts those of others, and starts TLS if they ask for it."""

    def __init__(
        self,
        log: Log,
        run_jobs: Callable[[], None],
        make_link: Callable[[bytes], PeerLink],
        *,
        tls: ssl.SSLContext | None,
        tls_required: bool,
        certificate_hash: Callable[[], bytes],
    ) -> None:
        """*run_jobs* begins the jobs that links have started.

        *make_link* makes the link of an accepted connection, given the hash of the certificate of its TLS.
        """
        self.all: dict[PeerConnection, None] = {}
        self.log = log
        self.run_jobs = run_jobs
        self.make_link = make_link
        self.tls = tls
        self.tls_required = tls_required
        self.certificate_hash = certificate_hash

    def accept(self, transport: asyncio.Transport, data: bytes) -> None:
        """Take over a connection whose first bytes were the magic; *data* has the bytes after it."""
        connection = _Accepted(self)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if data:
            connection.data_received(data)

    def flush(self) -> None:
        """Send waiting frames, to each peer in one write."""
        for connection in list(self.all):
            connection.flush()

    def close(self) -> None:
        """End all connections."""
        for connection in list(self.all):
            connection.close("the node stops", Refuse.STOPPING)


class PeerConnection(asyncio.Protocol):
    """One connection; the link decides, this class moves bytes."""

    def __init__(self, connections: Connections) -> None:
        self.link: PeerLink | None = None
        self.transport: asyncio.Transport | None = None
        self.peer = ""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # On an unencrypted connection bytes are sent past the transport, directly to its socket.
        self._socket = -1
        self._connections = connections

    # --- asyncio's calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.peer = shown_peer(transport.get_extra_info("peername"))
        # The link bounds the bytes under way, so writing is never paused here.
        self.transport.set_write_buffer_limits(high=1 << 30)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            set_keepalive(sock)
            if transport.get_extra_info("sslcontext") is None:
                self._socket = sock.fileno()
        self._connections.all[self] = None

    def data_received(self, data: bytes) -> None:
        if self.link is not None:
            self.link.receive(data, now_ns())
            self.flush()
            self._connections.run_jobs()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._connections.all.pop(self, None)
        if self.link is not None:
            self.link.end(str(exc) if exc is not None else "the peer has closed the connection")
        if not self.closed.done():
            self.closed.set_result(None)

    # --- called by the link ---

    def flush(self) -> None:
        """Send waiting frames."""
        link, transport = self.link, self.transport
        if link is None or transport is None:
            return
        out = link.flush(now_ns())
        if out:
            self._send(transport, out)
        if link.is_closed:
            transport.close()

    def _send(self, transport: asyncio.Transport, out: list[bytes]) -> None:
        """Send the buffers as they are: a transport would first join them to one."""
        if self._socket >= 0 and not (transport.get_write_buffer_size() or transport.is_closing()):
            try:
                sent = os.writev(self._socket, out[:_MAX_BUFFERS])
            except OSError:
                # The socket takes nothing at the moment; if there is an error, the transport finds it.
                sent = 0
            out = remaining(out, sent)
        if out:
            transport.writelines(out)

    def close(self, reason: str, code: int = 0) -> None:
        """End the connection; with a code the peer gets the reason."""
        if self.link is not None:
            if code and not self.link.is_closed:
                self.link.refuse(code, reason)
            self.link.end(reason)
            self.flush()
        elif self.transport is not None:
            self.transport.abort()


def remaining(pieces: list[bytes], size: int) -> list[bytes]:
    """The rest of the buffers after the first *size* bytes."""
    for index, piece in enumerate(pieces):
        if size < len(piece):
            return [piece[size:], *pieces[index + 1 :]] if size else pieces[index:]
        size -= len(piece)
    return []


def peer_certificate_hash(connection: ssl.SSLObject | None) -> bytes:
    """SHA-256 of the server's certificate, as the connector sees it; empty without TLS."""
    certificate = None if connection is None else connection.getpeercert(binary_form=True)
    return hashlib.sha256(certificate).digest() if certificate else b""


def own_certificate_hash(path: str) -> bytes:
    """SHA-256 of the first certificate in a file, the server's own. Raises OSError and ValueError."""
    text = Path(path).read_text(encoding="ascii")
    begin = text.index("-----BEGIN CERTIFICATE-----")
    end = text.index("-----END CERTIFICATE-----", begin) + len("-----END CERTIFICATE-----")
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(text[begin:end])).digest()


# A peer that sends nothing for so long before its handshake is disconnected.
_FIRST_BYTES_S: Final = 10.0


class _Accepted(PeerConnection):
    """A connection of another node."""

    def __init__(self, connections: Connections) -> None:
        super().__init__(connections)
        # The first bytes, which may ask for TLS.
        self._first = b""
        self._timer = asyncio.get_running_loop().call_later(_FIRST_BYTES_S, self._timed_out)

    def data_received(self, data: bytes) -> None:
        if self.link is not None:
            super().data_received(data)
            return
        self._first += data
        if len(self._first) < len(START_TLS):
            return
        first, self._first = self._first, b""
        if first == START_TLS:
            self._start_tls()
        elif self._connections.tls_required:
            self._refuse("TLS is required here: --replication-tls")
        else:
            self._begin(b"", first)

    def _begin(self, certificate_hash: bytes, data: bytes) -> None:
        self._timer.cancel()
        self.link = self._connections.make_link(certificate_hash)
        if data:
            super().data_received(data)

    def _start_tls(self) -> None:
        transport, context = self.transport, self._connections.tls
        if transport is None:
            return
        if context is None:
            self._refuse("there is no certificate here for TLS: --tls-cert")
            return
        transport.write(START_TLS)
        Tls(transport, self, context, self._tls_started)

    def _tls_started(self, tls: Tls, why_not: str) -> None:
        if why_not:
            self._refuse(why_not)
            return
        # Bytes no longer go past the transport to the socket.
        self._socket = -1
        self.transport = tls
        self._begin(self._connections.certificate_hash(), b"")

    def _refuse(self, sentence: str) -> None:
        self._connections.log.warning("REPLICATION: (%s) refused - %s", self.peer, sentence)
        if self.transport is not None:
            self.transport.write(encode(Refuse(Refuse.NOT_A_MEMBER, sentence)))
            self.transport.close()

    def _timed_out(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        link = self.link
        super().connection_lost(exc)
        if link is not None:
            self._connections.log.info(
                "REPLICATION: %s (%s) is gone - %s", link.address or "a stranger", self.peer, link.reason
            )
