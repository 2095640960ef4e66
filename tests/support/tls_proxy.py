"""A TCP proxy that ends the TLS of a replication connection, with another certificate of the authority."""

import socket
import ssl
import threading
from pathlib import Path
from typing import Self

from tests.support.certificates import Authority

# Magic of the stream, and StartTls.
_BEGIN = b"  R2" + b"\x01\0\0\0\x04"


class TlsProxy:
    """Forwards the decrypted bytes to a port, over TLS again."""

    def __init__(self, port: int, authority: Authority, folder: Path) -> None:
        self._port = port
        self._server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        issued = authority._ca.issue_cert("127.0.0.1", "localhost")
        issued.configure_cert(self._server)
        self._client = ssl.create_default_context(cafile=authority.file)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _start(self, work, *arguments) -> None:  # type: ignore[no-untyped-def]
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._connect, client)

    def _connect(self, client: socket.socket) -> None:
        try:
            target = socket.create_connection(("127.0.0.1", self._port), timeout=5)
            for side in (client, target):
                side.settimeout(5)
            assert client.recv(len(_BEGIN), socket.MSG_WAITALL) == _BEGIN
            client.sendall(_BEGIN[4:])
            target.sendall(_BEGIN)
            target.recv(5, socket.MSG_WAITALL)
            near = self._server.wrap_socket(client, server_side=True)
            far = self._client.wrap_socket(target, server_hostname="127.0.0.1")
        except OSError:
            return
        self._start(self._forward, near, far)
        self._start(self._forward, far, near)

    def _forward(self, source: ssl.SSLSocket, target: ssl.SSLSocket) -> None:
        try:
            while data := source.recv(4096):
                target.sendall(data)
        except OSError:
            pass
        finally:
            for side in (source, target):
                side.close()
