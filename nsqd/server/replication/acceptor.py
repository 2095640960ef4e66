"""Connections of other nodes: those to the TCP port that begin with the magic of the stream."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from nsqcore.process.logs import Log
from nsqcore.process.tls_layer import Tls
from nsqd.replication.frames import Refuse
from nsqd.replication.framing import encode
from nsqd.replication.link import PeerLink
from nsqd.server.replication.connection import START_TLS, Connections, PeerConnection

# A peer that sends nothing for so long before its hello is disconnected.
_FIRST_BYTES_S: Final = 10.0


class Acceptor:
    """Accepts other nodes, and starts TLS if they ask for it."""

    def __init__(
        self,
        connections: Connections,
        log: Log,
        make_link: Callable[[bytes], PeerLink],
        *,
        tls: ssl.SSLContext | None,
        tls_required: bool,
        certificate_hash: Callable[[], bytes],
    ) -> None:
        """*make_link* makes the link of a connection, given the hash of the certificate of its TLS."""
        self.connections = connections
        self.log = log
        self.make_link = make_link
        self.tls = tls
        self.tls_required = tls_required
        self.certificate_hash = certificate_hash

    def accept(self, transport: asyncio.Transport, data: bytes) -> None:
        """Take over a connection whose first bytes were the magic; *data* is what followed it."""
        connection = _Accepted(self)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if data:
            connection.data_received(data)


class _Accepted(PeerConnection):
    """A connection of another node."""

    def __init__(self, acceptor: Acceptor) -> None:
        super().__init__(acceptor.connections)
        self._acceptor = acceptor
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
        elif self._acceptor.tls_required:
            self._refuse("TLS is required here: --replication-tls")
        else:
            self._begin(b"", first)

    def _begin(self, certificate_hash: bytes, data: bytes) -> None:
        self._timer.cancel()
        self.link = self._acceptor.make_link(certificate_hash)
        if data:
            super().data_received(data)

    def _start_tls(self) -> None:
        transport, context = self.transport, self._acceptor.tls
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
        self._begin(self._acceptor.certificate_hash(), b"")

    def _refuse(self, sentence: str) -> None:
        self._acceptor.log.warning("REPLICATION: (%s) refused - %s", self.peer, sentence)
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
            self._acceptor.log.info(
                "REPLICATION: %s (%s) is gone - %s", link.address or "a stranger", self.peer, link.reason
            )
