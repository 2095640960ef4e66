"""The ports of a daemon's HTTP side, bound before the HTTP library is loaded."""

import socket
from contextlib import ExitStack
from dataclasses import dataclass

from nsqcore.options.https_options import HttpsOptions
from nsqcore.process.lifecycle import StartupError
from nsqcore.process.listen import bind
from nsqcore.process.tls import Certificates, reason, server_certificates


@dataclass(frozen=True, slots=True)
class HttpSockets:
    """The bound sockets and the certificate; the listeners made with them close the sockets."""

    plain: list[socket.socket]
    secure: socket.socket | None
    certificates: Certificates | None

    def close(self) -> None:
        for sock in self.plain:
            sock.close()
        if self.secure is not None:
            self.secure.close()


def open_http(options: HttpsOptions) -> HttpSockets:
    """Read the certificate and bind the ports. Raises StartupError."""
    certificates = _certificates(options)
    with ExitStack() as opened:
        (usual,) = map(_port, type(options).http_address)
        plain = [opened.enter_context(bind(one, usual, allow_unix=True)) for one in options.http_address]
        secure = None
        if certificates is not None and options.https_address:
            secure = opened.enter_context(bind(options.https_address, _port(type(options).https_address)))
        # All are bound: from now on the caller closes them.
        opened.pop_all()
    return HttpSockets(plain, secure, certificates)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _certificates(options: HttpsOptions) -> Certificates | None:
    if not options.has_certificate:
        return None
    try:
        return server_certificates(options.tls_cert, options.tls_key, options.tls_min_version)
    except (OSError, ValueError) as error:
        raise StartupError(f"failed to build TLS config - {reason(error)}") from error
