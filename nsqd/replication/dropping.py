"""Which copies of one log a node may drop, and which owners are fully replicated: rules 11 and 12."""

from collections.abc import Container
from typing import Final

from nsqd.engine import promoted
from nsqd.replication.claims import Pending, count, subtract
from nsqd.replication.frames import CopyId, CopyKind
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.log_state import LogState, PeerCopy
from nsqd.replication.primary import Replicated
from nsqd.storage.topic_log import store_of

_S: Final = 1_000_000_000
# A replica whose stream does not come back is opened after so long, at the latest.
_OPEN_AFTER_NS: Final = 5 * _S


def waits_for(log: LogState, copy: LocalCopy, now_ns: int) -> str:
    """The reason why an open copy may not be dropped yet; empty when it may be."""
    if copy.retry_ns > now_ns:
        return f"another attempt, because of: {copy.problems.get('', '')}"
    if copy.unreadable:
        return "topics that cannot be read"
    if not copy.is_open:
        after_ns = open_after_ns(log.node.settings.failover_ns)
        return f"its primary, or {after_ns / _S:g} s without a connection to it"
    if copy.take_over_epoch:
        return "its promotion"
    if in_flight(copy):
        return "messages in flight"
    if any(not (one.is_open or one.is_streamed or one.is_dropped) for one in log.copies):
        # It may lack what was finished in this copy: see `LogState.opened`.
        return "another copy here to be opened"
    reason = _needed_by(log, copy, now_ns)
    if not reason and copy.is_owner:
        # Messages that were published after the last checkpoint count as well.
        log.pending_again(copy)
        reason = _needed_by(log, copy, now_ns)
    return reason


def _needed_by(log: LogState, copy: LocalCopy, now_ns: int) -> str:
    """Why a copy without messages in flight is still needed; empty when it is not."""
    if is_unstored(copy):
        return "a checkpoint of its channel state"
    pending = log.pending(copy)
    if pending:
        using = [one.pending for one in log.peer_copies.values() if _may_rely_on(log, copy, one)]
        using += [log.delivered(one) for one in log.copies if _may_rely_on_local(log, copy, one, now_ns)]
        left = subtract(pending, using)
        if left:
            return _reason(log, copy, left, now_ns)
    else:
        for peer, address in copy.holders.items():
            if not _has_state(log, peer, copy):
                return f"{address or peer.hex()} to store the channel state"
    return ""


def _reason(log: LogState, copy: LocalCopy, left: Pending, now_ns: int) -> str:
    """Why this node still needs messages of a copy."""
    owners = [one for one in log.owners(now_ns) if not copy.is_owner or one.claim > log.claim(copy)]
    missing = subtract(left, [one.pending for one in owners])
    messages = f"{count(missing)} message{'s' * (count(missing) != 1)}"
    if missing:
        return f"consumers of {messages}" if copy.is_owner else f"an owner that delivers {messages}"
    if any(one.node not in log.exchanges for one in owners):
        return "a connection to the owner"
    if not any(one.fully_replicated for one in owners):
        return "the owner to be fully replicated"
    return "the owner to store the channel state"


def _may_rely_on(log: LogState, copy: LocalCopy, known: PeerCopy) -> bool:
    """Rule 11, for an owner on another node."""
    exchange = log.exchanges.get(known.node)
    if exchange is None or not known.is_owner or not known.is_full:
        return False
    if not (known.fully_replicated or (log.node.is_decommissioning and log.node.fewer_copies)):
        return False
    if copy.is_owner and known.claim < log.claim(copy):
        return False
    if not copy.is_owner and known.received_ns <= copy.detached_ns:
        return False
    if CopyId(log.node.identity, copy.number) in known.counted:
        return False
    return exchange.has_state_of(copy)


def _may_rely_on_local(log: LogState, copy: LocalCopy, other: LocalCopy, now_ns: int) -> bool:
    """Rule 11, for an owner on this node."""
    if other is copy or not other.is_owner or other.is_busy:
        return False
    if copy.is_owner and log.claim(other) < log.claim(copy):
        return False
    if is_unstored(other, copy.topics):
        return False
    return log.counted(other, 0, now_ns) is not None


def _has_state(log: LogState, peer: bytes, copy: LocalCopy) -> bool:
    """Rule 12: whether the peer has the channel state of the copy in a checkpoint, or no copy."""
    if peer in log.without_copy or peer == log.node.identity:
        return True
    exchange = log.exchanges.get(peer)
    copies = log.known_at(peer)
    if exchange is None or not copies:
        return False
    if any(one.kind != CopyKind.STREAMED for one in copies):
        return exchange.has_state_of(copy)
    # The peer learns from the owner that streams into its copy.
    owners = {one.owner for one in copies}
    if owners == {log.node.identity}:
        return _replica_has_state(log, peer)
    return all(owner != peer and _owner_has_state(log, owner, copy) for owner in owners)


def _owner_has_state(log: LogState, owner: bytes, copy: LocalCopy) -> bool:
    if owner == log.node.identity:
        return True
    exchange = log.exchanges.get(owner)
    return exchange is not None and exchange.has_state_of(copy)


def _replica_has_state(log: LogState, peer: bytes) -> bool:
    """Whether a replica of this node has all checkpoints that were sent to it, durably."""
    streams = [one for primary in log.primaries.values() for one in primary.streams]
    mine = [one for one in streams if one.peer == peer]
    for stream in mine:
        if stream.sender.synced < stream.checkpoint_position:
            stream.sender.request_sync()
            return False
    return bool(mine)


def check_replication(log: LogState, copy: LocalCopy, now_ns: int) -> None:
    """Find out whether all that this owner delivers is synced here and at enough replicas."""
    primary = log.primaries.get(copy)
    streams = [] if primary is None else [one for one in primary.streams if one.is_caught_up]
    check = log.checks.get(copy)
    if len(streams) < log.node.settings.replicas:
        log.checks.pop(copy, None)
        return
    if check is not None and set(check.streams) <= set(streams):
        check.look()
        latest = max((one.opened_ns for one in log.exchanges.values()), default=0)
        if not check.is_done or check.began_ns > latest:
            return
    if log.exchanges:
        log.checks[copy] = check = Replicated(streams, now_ns, synced_here=not copy.is_origin)
        if copy.is_origin:
            log.node.local_syncs.append(check)


def open_after_ns(failover_ns: int) -> int:
    """How long a replica waits for its stream before it is opened."""
    return min(_OPEN_AFTER_NS, failover_ns // 2)


def in_flight(copy: LocalCopy) -> bool:
    """Whether consumers have messages of the copy."""
    return any(promoted.in_flight(topic) for topic in copy.topics.values())


def is_unstored(copy: LocalCopy, names: Container[str] | None = None) -> bool:
    """Whether channel state of a copy, or of some of its topics, is not in a checkpoint yet."""
    for topic in copy.durable_topics():
        if names is not None and topic.name not in names:
            continue
        store = store_of(topic)
        if topic.has_changed or (store is not None and store.checkpoints.is_writing):
            return True
    return False
