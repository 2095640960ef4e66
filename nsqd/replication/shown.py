"""What GET /replication shows of a node."""

from typing import Any, Final, Protocol

from nsqd.replication.claims import count
from nsqd.replication.link import PeerLink
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.log_copies import LogCopies
from nsqd.replication.node_record import NodeRecord
from nsqd.replication.primary import Primary, ReplicaSettings

_S: Final = 1_000_000_000


class ShownNode(Protocol):
    """The node; `ReplicationNode` is that."""

    identity: bytes
    record: NodeRecord
    settings: ReplicaSettings
    replicas: list[bytes]
    logs: dict[bytes, LogCopies]

    @property
    def own_copy(self) -> LocalCopy: ...
    @property
    def primary(self) -> Primary: ...
    def link_to(self, peer: bytes) -> PeerLink | None: ...
    def holders_of(self, copy: LocalCopy) -> dict[bytes, str]: ...


def shown_node(node: ShownNode, now_ns: int) -> dict[str, Any]:
    """The content of GET /replication."""
    own = node.logs[node.identity]
    counted = own.counted(node.own_copy, 0, now_ns)
    return {
        "identity": node.identity.hex(),
        "incarnation": node.record.incarnation,
        "epoch": node.own_copy.epoch,
        "replicas_wanted": node.settings.replicas,
        "fully_replicated": counted is not None,
        "replicas": [_shown_replica(node, identity, now_ns) for identity in node.replicas],
        "copies": [
            _shown_copy(node, log, copy, now_ns)
            for log in node.logs.values()
            for copy in log.copies
            if not copy.is_origin
        ],
    }


def _shown_replica(node: ShownNode, identity: bytes, now_ns: int) -> dict[str, Any]:
    link = node.link_to(identity)
    stream = None if link is None else link.stream_of(node.primary)
    address = next((one.address for one in node.record.replicas if one.identity == identity), "")
    found = no_replica(address, identity)
    if stream is not None:
        in_sync = stream.in_sync_topics == stream.topics
        state = "caught_up" if stream.is_caught_up else "in_sync" if in_sync else "catching_up"
        found |= {
            "state": "stalled" if stream.sender.stalled else state,
            "caught_up_topics": stream.caught_up_topics,
            "in_sync_topics": stream.in_sync_topics,
            "topics": stream.topics,
            "lag_bytes": stream.sender.lag_bytes,
            "lag_seconds": stream.sender.lag_ns(now_ns) / _S,
        }
    return found


def _shown_copy(node: ShownNode, log: LogCopies, copy: LocalCopy, now_ns: int) -> dict[str, Any]:
    pending = count(log.delivered(copy))
    link = node.link_to(copy.owner)
    state = "promoted" if copy.is_owner else "replica"
    return {
        "origin": copy.origin.hex(),
        "number": copy.number,
        "state": "state_only" if copy.is_owner and copy.is_open and not pending else state,
        "epoch": copy.epoch,
        "owner": (node.identity if copy.is_owner else copy.owner).hex(),
        "address": node.holders_of(copy).get(copy.owner, ""),
        "connected": copy.is_streamed and link is not None,
        "topics": len(copy.topics),
        "pending": pending,
        "yielded": copy.yielded_count,
        "fully_replicated": log.counted(copy, 0, now_ns) is not None,
        "waits_for": copy.waits_for,
        "holders": [identity.hex() for identity in node.holders_of(copy)],
        "problems": copy.problems,
    }


def no_replica(address: str, identity: bytes = b"") -> dict[str, Any]:
    """A replica in GET /replication to which nothing is streamed; it may be known by its address only."""
    return {
        "identity": identity.hex(),
        "address": address,
        "state": "unreachable",
        "caught_up_topics": 0,
        "in_sync_topics": 0,
        "topics": 0,
        "lag_bytes": 0,
        "lag_seconds": 0.0,
        "problem": "",
    }
