"""Finishing, requeueing and sending single messages of a channel for somebody who is not a consumer. Pure.

A consumer that has such a message in flight loses it: its answer then fails, as after a time-out. Messages
held back at a paused topic are pending on no channel yet and are left alone, and so are those on their way to
the dead letters.
"""

from collections.abc import Iterable

from nsqd.engine.channel import Channel
from nsqd.engine.state import enqueue_ranges
from nsqd.log.ranges import Ranges, merged, within


def pending_of(channel: Channel, seqs: Iterable[int]) -> list[int]:
    """Those of *seqs* that the channel must deliver and that can be handled, sorted."""
    dead_letter_queue = merged(channel.dead_letter_queue.ranges())
    return sorted(
        seq
        for seq in set(seqs)
        if seq < channel.end and seq not in channel.finished and not within(dead_letter_queue, seq, seq + 1)
    )


def deferred_of(channel: Channel, seqs: Iterable[int]) -> list[int]:
    """Those of *seqs* that are deferred, sorted. Takes time in proportion to all deferred messages."""
    wanted = merged([(seq, seq + 1) for seq in pending_of(channel, seqs)])
    if not wanted:
        return []
    found: list[int] = []
    first, end = wanted[0][0], wanted[-1][1]
    for _, start, stop in channel.deferred.runs():
        if start < end and stop > first:
            found += [seq for low, high in wanted for seq in range(max(start, low), min(stop, high))]
    return sorted(found)


def finish(channel: Channel, seqs: Iterable[int]) -> Ranges:
    """Finish messages, wherever they are; returns those that were pending."""
    pending = pending_of(channel, seqs)
    if pending:
        _take_out(channel, pending)
        channel.finished.add_all(pending)
        for seq in pending:
            channel.attempts.pop(seq, None)
        channel.changed = True
    return merged([(seq, seq + 1) for seq in pending])


def defer(channel: Channel, seqs: Iterable[int], due_ns: int, now_ns: int) -> list[int]:
    """Defer messages until *due_ns*; if that is past, they wait behind the others.

    A message that was in flight counts as delivered. Returns those that were pending.
    """
    pending = pending_of(channel, seqs)
    flying = _take_out(channel, pending) if pending else set()
    for seq in sorted(flying):
        count = channel.attempts.setdefault(seq, 1)
        channel.requeue_count += 1
        if channel.journal is not None:
            channel.journal.tried(seq, seq + 1, count)
    for start, end in merged([(seq, seq + 1) for seq in pending]):
        if due_ns > now_ns:
            channel.defer(start, end, due_ns)
            continue
        if channel.journal is not None:
            # The last entry for a message counts, so this one replaces an earlier due time.
            channel.journal.defer(start, end, now_ns)
        enqueue_ranges(channel, [(start, end)])
    channel.changed = channel.changed or bool(pending)
    return pending


def _take_out(channel: Channel, pending: list[int]) -> set[int]:
    """Take messages from wherever they are, for a moment; returns those that were in flight."""
    flying = channel.in_flight.runs_of(pending)
    for seq in flying:
        channel.taken_from(channel.in_flight.take_away(seq))
    remaining = set(pending).difference(flying)
    if remaining:
        channel.take_out(remaining)
    return set(flying)
