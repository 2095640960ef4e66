"""Which messages the owners of one log on this node deliver: rules 6, 7, 10 and 13."""

from typing import Final

from nsqd.log.ranges import merged
from nsqd.replication.claims import NO_CHANNEL, Claim, Pending, count, subtract
from nsqd.replication.dropping import in_flight, is_unstored
from nsqd.replication.frames import TakeOver
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.log_state import LogState
from nsqd.replication.log_stream import LogStream

# An owner that starts, takes over or was suspended waits so long for the status of the holders.
STATUS_WAIT_NS: Final = 2_000_000_000


def apply_yielding(log: LogState, now_ns: int) -> None:
    """Let each owner here yield what a higher owner delivers."""
    higher: list[tuple[Claim, Pending]] = [(one.claim, one.pending) for one in log.owners(now_ns)]
    for copy in sorted(log.copies, key=log.claim, reverse=True):
        if not copy.is_owner or not copy.has_state:
            continue
        claim = log.claim(copy)
        others = [pending for other, pending in higher if other > claim]
        if not others and _is_stale(copy, now_ns):
            # No higher owner was heard for the failover timeout: first the epoch is raised, durably.
            continue
        _set_yielded(log, copy, others)
        higher.append((claim, log.delivered(copy)))


def _is_stale(copy: LocalCopy, now_ns: int) -> bool:
    return bool(copy.yielded) and copy.seen > copy.epoch and not copy.asks(now_ns)


def _set_yielded(log: LogState, copy: LocalCopy, others: list[Pending]) -> None:
    yielded: Pending = {}
    for pending in others:
        for name, channels in pending.items():
            if name in copy.topics:
                mine = yielded.setdefault(name, {})
                for key, ranges in channels.items():
                    mine[key] = merged([*mine.get(key, ()), *ranges])
    changed = {
        name for name in yielded.keys() | copy.yielded.keys() if yielded.get(name) != copy.yielded.get(name)
    }
    if not changed:
        return
    copy.yielded = yielded
    for name in changed:
        update(log, copy, name)
        for exchange in log.exchanges.values():
            exchange.topic_changed(copy, name)
    all_pending = log.pending(copy)
    copy.yielded_count = count(all_pending) - count(subtract(all_pending, [yielded]))


def update(log: LogState, copy: LocalCopy, name: str) -> None:
    """Suspend on a topic's channels the yielded messages, and old ones while holders have not answered."""
    topic = copy.topics.get(name)
    if topic is None or not copy.is_owner:
        return
    suspended = copy.suspended_ranges(name)
    yielded = copy.yielded.get(name, {})
    # The owner that has them delivers them to its first channel.
    unassigned = yielded.get(NO_CHANNEL, [])
    topic.suspended = merged([*suspended, *unassigned]) if topic.origin else unassigned
    for channel in topic.channels.values():
        mine = [*suspended, *yielded.get((channel.name, channel.generation), ())]
        ranges = merged(mine if channel.ephemeral else [*mine, *unassigned])
        if ranges != channel.backlog.suspended:
            channel.backlog.suspend(ranges)
            channel.expiry_ns = 0
            log.node.broker.serve(channel)
            log.node.wants_turn = True


# --- rule 10: queries ---


def await_statuses(log: LogState, copy: LocalCopy, now_ns: int, *, failover: bool = False) -> None:
    """Query the status of the holders before old messages are delivered.

    After a failover the query skips a holder that was not reached for the failover timeout.
    """
    peers = copy.holders.keys() - log.without_copy
    log.unreached = peers - log.exchanges.keys() if failover else set()
    peers -= log.unreached
    copy.asks_until_ns = now_ns + STATUS_WAIT_NS if peers else now_ns
    copy.old_ends = {name: topic.log.next_seq for name, topic in copy.topics.items()} if peers else {}
    for exchange in log.exchanges.values():
        exchange.request_full_state()
    for name in copy.old_ends:
        update(log, copy, name)


def end_asking(log: LogState, now_ns: int) -> None:
    for copy in log.copies:
        if not copy.old_ends:
            continue
        missing = copy.holders.keys() - log.without_copy - {log.node.identity}
        missing -= log.unreached
        missing -= {peer for peer, one in log.exchanges.items() if one.answered}
        if copy.asks_until_ns > now_ns and missing:
            continue
        names, copy.old_ends, copy.asks_until_ns = list(copy.old_ends), {}, 0
        log.unreached.clear()
        # The answers are taken into account first.
        apply_yielding(log, now_ns)
        for name in names:
            update(log, copy, name)


# --- rule 13: transfer ---


def apply_transfer(log: LogState, copy: LocalCopy, now_ns: int) -> str:
    """Let a replica take over without a wait; returns why the transfer does not proceed yet."""
    if not log.node.is_decommissioning or not copy.has_state:
        return ""
    if copy.asks(now_ns):
        return "the statuses of other nodes"
    if copy not in log.primaries or not log.delivered(copy):
        return ""
    stream = _stream_of(log, copy)
    if stream is None or not stream.is_caught_up:
        suspend(log, copy, suspended=False)
        return "a replica that is caught up"
    if not copy.transfer_ns:
        copy.transfer_ns = now_ns
    suspend(log, copy, suspended=True)
    waited_ns = now_ns - copy.transfer_ns
    if waited_ns < log.node.broker.limits.msg_timeout_ns and in_flight(copy):
        return "messages in flight"
    if is_unstored(copy) or stream.sender.synced < stream.checkpoint_position:
        stream.sender.request_sync()
        return "the last channel state at the new owner"
    if not stream.take_over_sent:
        stream.take_over_sent = True
        stream.sender.put(TakeOver(stream.number, max(copy.epoch, copy.seen) + 1))
    return "the takeover by the new owner"


def _stream_of(log: LogState, copy: LocalCopy) -> LogStream | None:
    """The stream to the node that is to take the log over."""
    node, primary = log.node, log.primaries[copy]
    targets = {one.identity for one in node.record.replicas if one.address == node.target}
    found = [
        stream
        for link in node.links
        if not link.peer_drains and (stream := link.stream_of(primary)) is not None
        if not node.target or link.address == node.target or link.peer in targets
    ]
    return max(found, key=lambda one: one.is_caught_up, default=None)


def suspend(log: LogState, copy: LocalCopy, *, suspended: bool) -> None:
    """Suspend the delivery of a copy, or resume it."""
    if copy.is_transferring == suspended:
        return
    copy.is_transferring = suspended
    copy.transfer_ns = copy.transfer_ns if suspended else 0
    for name in copy.topics:
        update(log, copy, name)
