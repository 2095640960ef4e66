"""The first steps of a start: the data path, the certificates, the ports.

Nothing here imports the HTTP library or the broker, so clients can connect while those are loaded: the kernel
keeps their connections until they are served.
"""

import socket
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from nsqcore.process.lifecycle import StartupError
from nsqcore.process.listen import bind, listen_port
from nsqcore.process.logs import Log
from nsqcore.process.tls import Certificates
from nsqd.build import nsqd_banner
from nsqd.options import NsqdOptions
from nsqd.server.tls import own_certificates, trusted
from nsqd.storage.lock import DataPathLocked, wait_for_data_path


@dataclass(frozen=True, slots=True)
class OpenedNsqd:
    """The opened resources; the daemon that gets them owns them."""

    path: Path
    lock: int
    """The descriptor that holds the data path."""
    certificates: Certificates | None
    trusted: Certificates | None
    """The authorities that nsqd trusts; None for the system's list."""
    tcp: socket.socket
    http: list[socket.socket]
    https: socket.socket | None

    @property
    def ports(self) -> tuple[int, int]:
        """The TCP and HTTP ports as /info shows them: -1 for a unix socket, 0 without HTTP."""
        http = next(filter(None, map(listen_port, self.http)), -1) if self.http else 0
        return listen_port(self.tcp) or -1, http


def open_all(options: NsqdOptions, log: Log) -> OpenedNsqd:
    """Log the banner and open everything that a start needs. Raises StartupError with one sentence."""
    log.info(nsqd_banner())
    log.info("ID: %d", options.node_id)
    path = Path(options.data_path or ".").absolute()
    try:
        lock = wait_for_data_path(path, log.warning)
    except DataPathLocked as error:
        raise StartupError(f"failed to lock data-path: {error}") from error
    certificates = own_certificates(options)
    believed = trusted(options) if options.tls_root_ca_file or options.auth_http_address else None
    with ExitStack() as opened:
        tcp = opened.enter_context(bind(options.tcp_address, 4150, allow_unix=True))
        http = [opened.enter_context(bind(one, 4151, allow_unix=True)) for one in options.http_address]
        https = None
        if certificates is not None and options.https_address:
            https = opened.enter_context(bind(options.https_address, 4152))
        # Everything is open: the daemon closes it.
        opened.pop_all()
    return OpenedNsqd(path, lock, certificates, believed, tcp, http, https)
