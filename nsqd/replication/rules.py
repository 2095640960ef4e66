"""The rules of replication for one log, applied to its copies on this node.

Numbers in comments are those of the rules in docs/internals/replication.md. No socket, no clock, no thread.
"""

from typing import Final

from nsqd.replication.claims import STAGGER_NS, subtract, takeover_wait_ns
from nsqd.replication.dropping import check_replication, open_after_ns, waits_for
from nsqd.replication.jobs import Jobs
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.log_state import LogState, PeerCopy
from nsqd.replication.yielding import apply_transfer, apply_yielding, end_asking

_S: Final = 1_000_000_000


def apply_rules(log: LogState, jobs: Jobs, now_ns: int) -> None:
    """Apply the rules; called once a second, and after each status and job."""
    seen = (
        frozenset(key for key, known in log.peer_copies.items() if log.is_fresh(known, now_ns)),
        tuple(map(log.claim, log.copies)),
    )
    if seen != log.seen_before:
        log.seen_before = seen
        log.changed()
    end_asking(log, now_ns)
    if log.node.is_decommissioning:
        # Messages that were published since the last checkpoint count as pending.
        for copy in log.copies:
            if copy.is_origin:
                log.pending_again(copy)
                log.changed()
    if log.has_changed:
        log.has_changed = False
        log.undelivered.clear()
        apply_yielding(log, now_ns)
    for copy in list(log.copies):
        copy.waits_for = _apply(log, jobs, copy, now_ns)
    for peer in log.all_holders:
        link = None if peer in log.exchanges else log.node.link_to(peer)
        if link is not None:
            log.exchange(link, now_ns)
    for exchange in list(log.exchanges.values()):
        log.send_status(exchange, now_ns)


def _apply(log: LogState, jobs: Jobs, copy: LocalCopy, now_ns: int) -> str:
    """Apply the rules to a copy; returns why it is not dropped yet, in words."""
    if copy.is_busy:
        return "a job on its files"
    if copy.is_negotiating:
        return "the owner that resumes its stream"
    if copy.is_streamed:
        return ""
    if copy.running_jobs:
        return "jobs of its last stream"
    if _open_again(copy, now_ns):
        jobs.open(log, copy)
        return "a job on its files"
    reason = ""
    if copy.is_owner:
        _raise_epoch(log, jobs, copy, now_ns)
        check_replication(log, copy, now_ns)
        reason = apply_transfer(log, copy, now_ns)
    else:
        _check_failover(log, jobs, copy, now_ns)
    to_drop = _drop(log, jobs, copy, now_ns)
    return reason or to_drop


def _drop(log: LogState, jobs: Jobs, copy: LocalCopy, now_ns: int) -> str:
    """Drop a copy if the rules allow it; otherwise returns the reason why they do not."""
    if copy.is_busy:
        return "a job on its files"
    if copy.is_origin and not log.node.is_decommissioning:
        return ""
    reason = waits_for(log, copy, now_ns)
    if reason:
        return reason
    jobs.drop(log, copy)
    return "" if copy.is_origin else "a job on its files"


def _open_again(copy: LocalCopy, now_ns: int) -> bool:
    """Whether to open a promoted copy that could not be opened, or topics that could not be read."""
    wanted = copy.is_owner and not copy.is_open
    wanted = wanted or (copy.is_open and bool(copy.unreadable) and copy.read_again_ns <= now_ns)
    return wanted and not copy.is_origin and copy.retry_ns <= now_ns


# --- rule 8: epochs and failover ---


def _raise_epoch(log: LogState, jobs: Jobs, copy: LocalCopy, now_ns: int) -> None:
    if copy.seen <= copy.epoch or copy.asks(now_ns):
        return
    if any(one.claim > log.claim(copy) for one in log.owners(now_ns)):
        return
    if any(other.is_owner and log.claim(other) > log.claim(copy) for other in log.copies):
        return
    jobs.raise_epoch(log, copy, copy.seen + 1)


def _has_answered(log: LogState, known: PeerCopy) -> bool:
    """Whether an owner has sent its whole channel state since a copy here was opened."""
    exchange = log.exchanges.get(known.node)
    return known.is_full and (exchange is None or exchange.answered)


def _has_undelivered(log: LogState, copy: LocalCopy, now_ns: int) -> bool:
    """Whether a replica has pending messages that no owner delivers."""
    found = log.undelivered.get(copy)
    if found is None:
        owners = [one.pending for one in log.owners(now_ns)]
        owners += [log.delivered(one) for one in log.copies if one.is_owner]
        found = log.undelivered[copy] = bool(subtract(log.pending(copy), owners))
    return found


def next_check_ns(log: LogState, now_ns: int) -> int:
    """The time of the next check: soon while holders have not answered, else in a second at the latest."""
    if any(copy.old_ends for copy in log.copies):
        return now_ns + _S // 10
    wait_ns = log.node.settings.failover_ns
    due = [
        copy.since_ns + takeover_wait_ns(wait_ns, copy.index)
        if copy.is_open
        else copy.since_ns + open_after_ns(wait_ns)
        for copy in log.copies
        if not (copy.is_owner or copy.is_streamed or copy.is_busy)
    ]
    return min([one for one in due if one > now_ns] + [now_ns + _S])


def _check_failover(log: LogState, jobs: Jobs, copy: LocalCopy, now_ns: int) -> None:
    """A replica without a stream: is its owner gone, or does the owner lack messages? Rules 8 and 9."""
    if copy.retry_ns > now_ns:
        return
    failover_ns = log.node.settings.failover_ns
    if not copy.is_open:
        # Later than the end of its stream: the answers to its questions must be later as well (rule 11).
        is_due = copy.detached_ns < now_ns >= copy.since_ns + open_after_ns(failover_ns)
        if copy.take_over_epoch or is_due or copy.opened:
            jobs.open(log, copy)
        return
    if copy.take_over_epoch:
        jobs.promote(log, copy, copy.take_over_epoch, failover=False)
        return
    owners = log.owners(now_ns)
    if not _has_undelivered(log, copy, now_ns):
        copy.since_ns = max((one.heard_ns for one in owners), default=now_ns)
        return
    if not all(_has_answered(log, one) for one in owners):
        return
    waited_ns = now_ns - copy.since_ns
    present = [one.received_ns > copy.detached_ns for one in owners if one.epoch >= copy.epoch]
    # An owner that is silent for less than the failover timeout may have more than its last status names.
    if present and all(present):
        if waited_ns >= STAGGER_NS * copy.index:
            jobs.promote(log, copy, copy.epoch, failover=False)
    elif waited_ns >= takeover_wait_ns(failover_ns, copy.index):
        jobs.promote(log, copy, max(copy.epoch, copy.seen) + 1, failover=True)
