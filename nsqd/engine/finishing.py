"""Finishing ranges of messages for a channel, wherever they are, as another nsqd has done. Pure.

It takes time in proportion to what of the channel is not in order, not to how many messages the ranges have.
"""

from bisect import bisect_left

from nsqd.engine.channel import Channel
from nsqd.log.ranges import Ranges, merged, within


def merge_finished(channel: Channel, ranges: Ranges, end: int) -> Ranges:
    """Finish *ranges* of a log that ends at *end*; returns those that were not known to be finished.

    Messages that the topic holds back are remembered until the channel gets them. Doing it twice changes
    nothing.
    """
    news = finish(channel, ranges)
    ahead = within(merged(ranges), channel.end, end)
    if ahead:
        known = merged([*channel.ahead, *ahead])
        if known != channel.ahead:
            channel.ahead = known
            channel.changed = True
            news = merged([*news, *ahead])
    return news


def finish(channel: Channel, ranges: Ranges) -> Ranges:
    """Finish what the channel must deliver of *ranges*; returns those messages, sorted and merged.

    A consumer that has one of them in flight loses it.
    """
    pending = [
        part
        for start, end in merged(ranges)
        for part in channel.finished.missing(start, min(end, channel.end))
    ]
    if not pending:
        return []
    for consumer in channel.in_flight.take_ranges(pending):
        channel.taken_from(consumer)
    channel.remove_ranges(pending)
    channel.dead_letter_queue.take_out(pending)
    if channel.attempts:
        tried = sorted(channel.attempts)
        for start, end in pending:
            for seq in tried[bisect_left(tried, start) : bisect_left(tried, end)]:
                del channel.attempts[seq]
    for start, end in pending:
        channel.finished.add(start, end)
    channel.changed = True
    return pending
