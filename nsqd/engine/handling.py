"""Finishing, requeueing and sending single messages of a channel for a client that is no consumer. Pure.

A consumer that has such a message in flight loses it: its answer then fails, as after a time-out. Messages
at a paused topic are pending on no channel yet and do not change.
"""

from collections.abc import Iterable

from nsqd.engine.channel import Channel
from nsqd.log.ranges import Ranges, merged, ranges_of, size_of, within


def unfinished_of(channel: Channel, seqs: Iterable[int]) -> list[int]:
    """Those of *seqs* that the channel must deliver, sorted."""
    backlog = channel.backlog
    return sorted(seq for seq in set(seqs) if seq < backlog.end and seq not in backlog.finished)


def deferred_of(channel: Channel, seqs: Iterable[int]) -> list[int]:
    """Those of *seqs* that are deferred, sorted. Takes time in proportion to all deferred messages."""
    wanted = ranges_of(unfinished_of(channel, seqs))
    runs = channel.backlog.deferred.runs() if wanted else ()
    found = merged([part for _, start, end in runs for part in within(wanted, start, end)])
    return [seq for start, end in found for seq in range(start, end)]


def finish(channel: Channel, seqs: Iterable[int]) -> Ranges:
    """Finish messages, whatever their state is; returns those that were not finished."""
    return channel.remove(ranges_of(unfinished_of(channel, seqs)))


def defer(channel: Channel, seqs: Iterable[int], due_ns: int, now_ns: int) -> list[int]:
    """Defer messages until *due_ns*; if that is past, they are pending, behind the others.

    A message that was in flight counts as delivered. Returns those that were not finished.
    """
    backlog = channel.backlog
    unfinished = unfinished_of(channel, seqs)
    ranges = ranges_of(unfinished)
    taken = backlog.discard(ranges)
    for _, in_flight in taken:
        channel.requeue_count += size_of(in_flight)
        for start, end in in_flight:
            backlog.note_delivered(start, end)
    channel.notify_removed(taken)
    for start, end in ranges:
        if due_ns > now_ns:
            backlog.defer(start, end, due_ns)
        elif backlog.journal is not None:
            # The last entry for a message counts, so this one replaces an earlier due time.
            backlog.journal.defer(start, end, now_ns)
    if due_ns <= now_ns:
        backlog.enqueue(ranges)
    channel.changed = channel.changed or bool(ranges)
    return unfinished
