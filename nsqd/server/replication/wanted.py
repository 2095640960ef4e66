"""The options for copies."""

import socket
from dataclasses import dataclass
from pathlib import Path

from nsqclient.wire.address import join_host_port
from nsqcore.options.tls_kinds import TlsRequired
from nsqcore.process.lifecycle import StartupError
from nsqd.options import NsqdOptions
from nsqd.policies.quantities import size_bytes
from nsqd.replication.fields import MAX_TEXT
from nsqd.replication.home import HomeSettings


@dataclass(frozen=True, slots=True)
class ReplicationOptions:
    """The options for copies, parsed and checked."""

    home: HomeSettings
    node_id: int
    address: str
    keepers: tuple[str, ...] = ()
    keep_for_others: bool = True
    patience_ns: int = 300_000_000_000
    tls_required: bool = False
    asks: bool = False
    # Where this node is: another zone is preferred, then another host.
    zone: str = ""
    host: str = ""


def copying_options(options: NsqdOptions) -> ReplicationOptions:
    """The options for copies from nsqd's options. Raises StartupError."""
    home = HomeSettings(
        replicas=options.replicas,
        refuse=options.without_keeper == "refuse",
        strict=options.sync_every == 1,
        timeout_ns=options.keeper_timeout,
        fill_rate=size_bytes(options.fill_rate),
        secret=_secret(options.keeper_secret_file),
    )
    return ReplicationOptions(
        home=home,
        node_id=options.node_id,
        address=join_host_port(options.broadcast_address, options.broadcast_tcp_port),
        keepers=options.keepers,
        keep_for_others=options.keep_for_others,
        patience_ns=options.keeper_patience,
        tls_required=options.tls_required is not TlsRequired.NO,
        asks=bool(options.auth_http_address),
        zone=options.topology_zone,
        host=socket.gethostname(),
    )


def _secret(path: str) -> bytes:
    if not path:
        return b""
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise StartupError(f"failed to read --keeper-secret-file - {error}") from error
    if not 0 < len(secret) <= MAX_TEXT:
        raise StartupError(f"--keeper-secret-file must hold 1 to {MAX_TEXT} bytes, not {len(secret)}")
    return secret
