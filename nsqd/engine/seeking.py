"""Setting a channel to a position of the log, forward or back. Pure.

The set of finished messages of a channel only grows, and checkpoints and notes rely on that. So a channel
that is set back begins again with another generation: nothing that was noted of it before counts any more.
"""

from nsqd.engine.channel import Channel
from nsqd.engine.topic import Topic
from nsqd.log.ranges import Ranges, within, without


def seek(topic: Topic, channel: Channel, position: int, kept: Ranges, generation: int | None = None) -> None:
    """Make all *kept* messages from *position* on pending, and none before it. A repeat changes nothing.

    Messages in flight from *position* on stay with their consumers, deferred ones stay deferred, those on
    their way to the dead letters still go there, and all keep their attempts. What was published with a delay
    and is not due yet is deferred. Messages in flight before *position* are finished, as if they had been
    committed. *generation* is given when a seek is replayed: the
    channel gets that one.
    """
    # The topic hands over the messages that wait there, even if the channel is set to a position within them.
    waiting = topic.backlog.lowest()
    backlog = channel.backlog
    end = topic.log.next_seq if waiting is None else waiting
    channel.remove([(0, position)])
    deferred = list(backlog.deferred.runs())
    attempts = backlog.attempts.copy()

    backlog.reset(position)
    for start, stop in within(kept, position, end):
        backlog.pass_over(start)
        backlog.end = stop
    backlog.pass_over(end)

    settled = backlog.finished.copy()
    for seq, count in attempts.items():
        if seq not in settled:
            backlog.set_attempts(seq, seq + 1, count)
    for start, stop in backlog.dead_letter_queue.ranges() + backlog.in_flight.ranges():
        settled.add(start, stop)
    backlog.in_flight.note_again()
    for due_ns, start, stop in deferred + topic.deferred_in([(position, end)]):
        for low, high in settled.missing(start, stop):
            backlog.defer(low, high, due_ns)
        settled.add(start, stop)
    backlog.enqueue(settled.missing(position, end))
    channel.committed = position
    channel.absent = without([(position, end)], kept) if position < end else []
    channel.ahead = []
    channel.changed = topic.changed = True
    channel.generation = topic.draw_generation(channel.name) if generation is None else generation
