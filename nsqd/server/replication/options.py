"""The options for replication, parsed and checked."""

import socket
from collections.abc import Callable
from dataclasses import dataclass

from nsqclient.wire.address import join_host_port
from nsqd.options import NsqdOptions
from nsqd.policies.quantities import size_bytes
from nsqd.replication.primary import ReplicaSettings
from nsqd.server.replication.secret import ClusterSecret


@dataclass(frozen=True, slots=True)
class ReplicationOptions:
    """See the module. *named* are the addresses of --replica."""

    replicas: ReplicaSettings
    node_id: int
    address: str
    secret: Callable[[], tuple[bytes, ...]]
    named: tuple[str, ...] = ()
    replace_after_ns: int = 300_000_000_000
    tls: bool = False
    certificate_path: str = ""
    # Where this node is: another zone is preferred, then another host.
    zone: str = ""
    host: str = ""


def replication_options(options: NsqdOptions, warn: Callable[[str], None]) -> ReplicationOptions:
    """The options for replication; *warn* is called for later problems. Raises StartupError."""
    return ReplicationOptions(
        replicas=ReplicaSettings(
            replicas=options.replicas,
            refuse=options.replicas_missing == "refuse",
            strict=options.sync_every == 1,
            timeout_ns=options.replica_ack_timeout,
            catch_up_rate=size_bytes(options.catch_up_rate),
            failover_ns=options.failover_timeout,
            accept=options.accept_replicas,
        ),
        node_id=options.node_id,
        address=join_host_port(options.broadcast_address, options.broadcast_tcp_port),
        secret=ClusterSecret(options.cluster_secret_file, warn),
        named=options.replica,
        replace_after_ns=options.replica_replace_after,
        tls=options.replication_tls,
        certificate_path=options.tls_cert,
        zone=options.topology_zone,
        host=socket.gethostname(),
    )
