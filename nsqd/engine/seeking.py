"""Setting a channel to a place of the log, onward or back. Pure.

What a channel has finished only grows, and checkpoints and notes build on that. So a channel that goes back
begins again, as one of another generation: nothing that was noted of it before counts any more.
"""

from nsqd.engine.channel import Channel
from nsqd.engine.journal import Journal
from nsqd.engine.state import line_up
from nsqd.engine.topic import Topic
from nsqd.log.ranges import Ranges, within, without


def seek(topic: Topic, channel: Channel, position: int, kept: Ranges, generation: int | None = None) -> None:
    """Owe all that is *kept* from *position* on, and nothing before it. Doing it twice changes nothing.

    What is in flight from there on stays with its consumer, what is deferred stays deferred, what is on its
    way to the dead letters goes there, and all keep their attempts. What is in flight before it is done with,
    as if it had been committed. With *generation* it was done before, and got this one.
    """
    # What waits at the topic comes by itself, though the channel may have been set to a place within it.
    waiting = topic.backlog.lowest()
    end = channel.end if waiting is None else min(channel.end, waiting)
    for consumer in channel.in_flight.remove_below(position):
        consumer.in_flight -= 1
        channel.refresh(consumer)  # type: ignore[arg-type]
    channel.dying.drop_below(position)
    dying = channel.dying.ranges()
    flying = channel.in_flight.snapshot()
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
    for start, stop in dying:
        settled.add(start, stop)
    for seq, run in flying.items():
        settled.add(seq, seq + 1 if run.broken else run.end)
        # The next checkpoint tells again that it was delivered.
        run.noted = False
    for due_ns, start, stop in deferred:
        for low, high in settled.missing(max(start, position), stop):
            channel.put_off(low, high, due_ns)
        settled.add(start, stop)
    line_up(channel, settled.missing(position, end))
    channel.committed = position
    channel.absent = without([(position, end)], kept) if position < end else []
    channel.ahead = []
    channel.changed = topic.changed = True
    channel.generation = topic.draw_generation(channel.name) if generation is None else generation
