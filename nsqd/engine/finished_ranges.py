"""Facts that two nsqd with one log exchange: the finished messages of each channel. Pure.

A fact is positive and only grows: a consumer answered the message, the channel was emptied, the message
expired, is in the dead letters, or was published before the channel was made. An nsqd sends facts only of
messages that it has, or had (see `nsqd.log.tail`). The engine also finishes messages that it skips: that is
no fact. "Not pending" never means that a message is finished.
"""

from dataclasses import dataclass, field

from nsqd.engine.topic import Topic
from nsqd.log.ranges import Ranges, RangeSet, merged, within, without


@dataclass(frozen=True, slots=True)
class FinishedRanges:
    """Finished messages of a channel of this generation: sorted ranges of sequences of one log, merged."""

    generation: int
    finished: Ranges = field(default_factory=list)


def stored_ranges(topic: Topic) -> Ranges:
    """Messages of the log that this nsqd has or had: it may tell facts of them and need not be given them."""
    return topic.log.stored_ranges.ranges(topic.log.next_seq)


def readable(topic: Topic, stored: Ranges) -> Ranges:
    """The messages of the *stored* ranges that are really there: a compacted file covers a lost end too."""
    return intersection(merged(stored), stored_ranges(topic))


def readable_or_finished(topic: Topic, stored: Ranges) -> Ranges:
    """Messages that need no copy: they can be read here, or no channel must deliver them."""
    return without(stored_ranges(topic), without(pending_anywhere(topic), readable(topic, stored)))


def facts(topic: Topic, channel_name: str) -> FinishedRanges | None:
    """The facts of a channel for other nsqd; None if it is unknown.

    On a deleted channel everything is finished except what waits at the topic. Takes time in proportion to
    the messages that are not finished in order.
    """
    channel = topic.channels.get(channel_name)
    if channel is None:
        generation = topic.deleted_channels.get(channel_name)
        if generation is None:
            return None
        # Messages that wait at the topic are still pending, on another nsqd perhaps to this channel.
        waiting = topic.backlog.unfinished(0, topic.log.next_seq)
        return FinishedRanges(generation, without(stored_ranges(topic), waiting))
    return FinishedRanges(
        channel.generation,
        finished_of(channel.backlog.finished, channel.backlog.end, channel.ahead, stored_ranges(topic)),
    )


def finished_of(finished: RangeSet, end: int, ahead: Ranges, of: Ranges) -> Ranges:
    """The part of the ranges *of* that is finished: below *end* by *finished*, or by *ahead*."""
    found: Ranges = list(ahead)
    for start, stop in within(of, 0, end):
        found += without([(start, stop)], finished.missing(start, stop))
    return intersection(merged(found), of)


def intersection(ranges: Ranges, others: Ranges) -> Ranges:
    """The messages in both; each is sorted and merged."""
    return [part for start, end in others for part in within(ranges, start, end)]


def pending_anywhere(topic: Topic) -> Ranges:
    """Messages that the topic or one of its channels must deliver, so a copy of the log is retained."""
    end = topic.log.next_seq
    return merged([part for one in topic.all_backlogs() for part in one.unfinished(0, end)])
