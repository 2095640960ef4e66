"""Replication that is off, because there is no cluster secret: for servers that are made in a test."""

from collections.abc import Sequence

from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker
from nsqd.options import NsqdOptions
from nsqd.replication.choosing import Candidate
from nsqd.server.fsync import Fsync
from nsqd.server.replication.service import Replication
from nsqd.storage.data_path import DataPath


def unreplicated(broker: Broker, data: DataPath, fsync: Fsync, log: Log) -> Replication:
    """Return the service of a node that replicates nothing."""
    return Replication(
        NsqdOptions(node_id=1),
        broker,
        data,
        fsync,
        log,
        lambda: None,
        server_tls=None,
        client_tls=None,
        look_up=_no_addresses,
        candidates=_no_candidates,
    )


async def _no_addresses(_identities: Sequence[bytes]) -> dict[bytes, list[str]]:
    return {}


async def _no_candidates() -> Sequence[Candidate]:
    return ()
