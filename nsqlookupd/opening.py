"""The first steps of a start: ports and certificate authorities. Nothing here imports the HTTP library."""

from dataclasses import dataclass

from nsqcore.http.https_sockets import HttpSockets, open_http
from nsqcore.process.lifecycle import StartupError
from nsqcore.process.listen import TcpServer, bind
from nsqcore.process.logs import Log
from nsqcore.process.tls import Certificates, reason, trust
from nsqcore.version import banner
from nsqlookupd.options import NsqlookupdOptions


@dataclass(frozen=True, slots=True)
class OpenedPorts:
    """The opened resources; the daemon that gets them owns them."""

    tcp: TcpServer
    http: HttpSockets
    trusted: Certificates | None
    """The authorities trusted for the other nsqlookupds' certificates; None for the system's list."""


def open_all(options: NsqlookupdOptions, log: Log) -> OpenedPorts:
    """Log the banner and open everything that a start needs. Raises StartupError with one sentence."""
    log.info(banner("nsqlookupd"))
    try:
        trusted = trust(options.tls_root_ca_file) if options.tls_root_ca_file else None
    except (OSError, ValueError) as error:
        raise StartupError(f"failed to build client TLS config - {reason(error)}") from error
    tcp = TcpServer("TCP", bind(options.tcp_address, 4160), log)
    try:
        return OpenedPorts(tcp, open_http(options), trusted)
    except StartupError:
        tcp.sock.close()
        raise
