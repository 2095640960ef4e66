"""Being done with ranges of messages for a channel, wherever they are: what another nsqd has finished. Pure.

In proportion to what of the channel is not in order, not to how many messages the ranges have.
"""

from bisect import bisect_left
from typing import cast

from nsqd.engine.channel import Channel, Consumer
from nsqd.log.ranges import Ranges, merged, within


def unite(channel: Channel, ranges: Ranges, end: int) -> Ranges:
    """Be done with *ranges* of a log that ends at *end*; returns those that this is news of.

    What the topic holds back is remembered until the channel gets it. Doing it twice changes nothing.
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
    """Be done with what the channel owes of *ranges*; returns which that was, sorted and merged.

    A consumer that has one of them in flight loses it.
    """
    owed = [
        part
        for start, end in merged(ranges)
        for part in channel.finished.missing(start, min(end, channel.end))
    ]
    if not owed:
        return []
    for consumer in channel.in_flight.take_ranges(owed):
        consumer.in_flight -= 1
        channel.refresh(cast("Consumer", consumer))
    channel.take_out_ranges(owed)
    channel.dying.take_out(owed)
    if channel.attempts:
        tried = sorted(channel.attempts)
        for start, end in owed:
            for seq in tried[bisect_left(tried, start) : bisect_left(tried, end)]:
                del channel.attempts[seq]
    for start, end in owed:
        channel.finished.add(start, end)
    channel.changed = True
    return owed
