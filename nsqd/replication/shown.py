"""The content of GET /replication and GET /decommission of a node."""

from typing import Any, Final

from nsqd.replication.claims import count
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.log_state import Logs, LogState
from nsqd.replication.node_state import NodeState
from nsqd.replication.primary import Primary

_S: Final = 1_000_000_000


def node_json(node: NodeState, logs: Logs, now_ns: int) -> dict[str, Any]:
    """The content of GET /replication."""
    own = logs[node.identity]
    primary = own.primaries[node.own_copy]
    addresses = {one.identity: one.address for one in node.record.replicas}
    return {
        "identity": node.identity.hex(),
        "incarnation": node.record.incarnation,
        "epoch": node.own_copy.epoch,
        "replicas_wanted": node.settings.replicas,
        "fully_replicated": own.counted(node.own_copy, 0, now_ns) is not None,
        "replicas": [
            _replica_json(primary, no_replica(addresses.get(one, ""), one), now_ns) for one in node.replicas
        ],
        "copies": [
            _copy_json(node, log, copy, now_ns)
            for log in logs.values()
            for copy in log.copies
            if not copy.is_origin
        ],
    }


def _replica_json(primary: Primary, found: dict[str, Any], now_ns: int) -> dict[str, Any]:
    stream = next((one for one in primary.streams if one.peer.hex() == found["identity"]), None)
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


def _copy_json(node: NodeState, log: LogState, copy: LocalCopy, now_ns: int) -> dict[str, Any]:
    pending = count(log.delivered(copy))
    link = node.link_to(copy.owner)
    state = "promoted" if copy.is_owner else "replica"
    return {
        "origin": copy.origin.hex(),
        "number": copy.number,
        "state": "state_only" if copy.is_owner and copy.is_open and not pending else state,
        "epoch": copy.epoch,
        "owner": (node.identity if copy.is_owner else copy.owner).hex(),
        "address": copy.holders.get(copy.owner, ""),
        "connected": copy.is_streamed and link is not None,
        "topics": len(copy.topics),
        "pending": pending,
        "yielded": copy.yielded_count,
        "fully_replicated": log.counted(copy, 0, now_ns) is not None,
        "waits_for": copy.waits_for,
        "holders": [identity.hex() for identity in copy.holders],
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


# The content of GET /decommission of a node without a cluster secret.
NO_DECOMMISSION: Final[dict[str, Any]] = {
    "decommissioning": False,
    "done": False,
    "waits_for": "",
    **dict.fromkeys(("logs", "remaining", "transferred"), 0),
}


def decommission_json(node: NodeState, logs: Logs) -> dict[str, Any]:
    """The content of GET /decommission."""
    owned = [(log, copy) for log in logs.values() for copy in log.copies if copy.is_owner]
    others = [copy for log in logs.values() for copy in log.copies if not copy.is_origin]
    waits = next((copy.waits_for for _, copy in owned if copy.waits_for), "")
    if not waits and others:
        waits = next(
            (copy.waits_for for copy in others if copy.waits_for), "other nodes to drop or move copies"
        )
    done = node.is_transferred and not others
    return {
        "decommissioning": node.is_decommissioning,
        "done": done,
        "waits_for": "" if done else waits,
        "logs": len(owned),
        "remaining": sum(count(log.delivered(copy)) for log, copy in owned),
        "transferred": sum(copy.yielded_count for _, copy in owned),
    }
