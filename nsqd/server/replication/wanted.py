"""The options for copies."""

import socket
from collections.abc import Callable
from dataclasses import dataclass

from nsqclient.wire.address import join_host_port
from nsqcore.options.tls_kinds import TlsRequired
from nsqd.options import NsqdOptions
from nsqd.policies.quantities import size_bytes
from nsqd.replication.home import HomeSettings
from nsqd.server.replication.secret import KeeperSecret


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


def copying_options(options: NsqdOptions, warn: Callable[[str], None]) -> ReplicationOptions:
    """The options for copies from nsqd's options; *warn* is told of later problems. Raises StartupError."""
    home = HomeSettings(
        replicas=options.replicas,
        refuse=options.without_keeper == "refuse",
        strict=options.sync_every == 1,
        timeout_ns=options.keeper_timeout,
        fill_rate=size_bytes(options.fill_rate),
        secret=KeeperSecret(options.keeper_secret_file, warn),
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
