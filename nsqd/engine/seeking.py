"""Setting a channel to a position of the log, forward or back. Pure.

The set of finished messages of a channel only grows, and checkpoints and notes rely on that. So a channel
that is set back begins again with another generation: nothing that was noted of it before counts any more.
"""

from nsqd.engine.channel import Channel
from nsqd.engine.journal import Journal
from nsqd.engine.state import enqueue_ranges
from nsqd.engine.topic import Topic
from nsqd.log.ranges import Ranges, within, without


def seek(topic: Topic, channel: Channel, position: int, kept: Ranges, generation: int | None = None) -> None:
    """Owe all that is *kept* from *position* on, and nothing before it. Doing it twice changes nothing.

    Messages in flight from *position* on stay with their consumers, deferred ones stay deferred, those on
    their way to the dead letters still go there, and all keep their attempts. Messages in flight before
    *position* are finished, as if they had been committed. *generation* is given when a seek is replayed: the
    channel gets that one.
    """
    # The topic hands over the messages that wait there, even if the channel is set to a position within them.
    waiting = topic.backlog.lowest()
    end = channel.end if waiting is None else min(channel.end, waiting)
    for consumer in channel.in_flight.remove_below(position):
        channel.taken_from(consumer)
    channel.dead_letter_queue.drop_below(position)
    dead_letter_queue = channel.dead_letter_queue.ranges()
    deferred = [run for run in channel.deferred.runs() if run[2] > position]
    attempts = {seq: count for seq, count in channel.attempts.items() if seq >= position}

    channel.clear()
    channel.begin(position)
    if channel.journal is not None:
        channel.journal = Journal()
    for start, stop in within(kept, position, end):
        channel.finished.add(channel.end, start)
        channel.end = stop
    channel.finished.add(channel.end, end)
    channel.end = max(position, end)

    settled = channel.finished.copy()
    for seq, count in attempts.items():
        if seq not in settled:
            channel.attempts[seq] = count
            if channel.journal is not None:
                channel.journal.tried(seq, seq + 1, count)
    for start, stop in dead_letter_queue:
        settled.add(start, stop)
    for start, stop in channel.in_flight.ranges():
        settled.add(start, stop)
    channel.in_flight.note_again()
    for due_ns, start, stop in deferred:
        for low, high in settled.missing(max(start, position), stop):
            channel.defer(low, high, due_ns)
        settled.add(start, stop)
    enqueue_ranges(channel, settled.missing(position, end))
    channel.committed = position
    channel.absent = without([(position, end)], kept) if position < end else []
    channel.ahead = []
    channel.changed = topic.changed = True
    channel.generation = topic.draw_generation(channel.name) if generation is None else generation
