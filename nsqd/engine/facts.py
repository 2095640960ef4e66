"""What one nsqd may tell another of a log that both have: what of it is finished on each channel. Pure.

A fact is positive and only grows: a consumer answered, somebody emptied the channel, it expired, it is in
the dead letters, it was published before the channel was. It is told only of messages that the teller has, or
had (see `nsqd.log.had`): the engine is done with what it skips over as well, and that is no fact. Nobody
concludes from "not owed" that something is finished.
"""

from dataclasses import dataclass, field

from nsqd.engine.carried_topic import CarriedTopic
from nsqd.engine.topic import Topic
from nsqd.log.ranges import Ranges, RangeSet, merged, within, without


@dataclass(frozen=True, slots=True)
class ChannelFacts:
    """What is finished on a channel of this generation: sorted ranges of sequences of one log, merged."""

    generation: int
    finished: Ranges = field(default_factory=list)


def had(topic: Topic) -> Ranges:
    """What this nsqd has of the log, or had: what it may speak of, and what it need not be given."""
    return topic.log.had.ranges(topic.log.next_seq)


def readable(topic: Topic, stored: Ranges) -> Ranges:
    """Of what is *stored* by number, what really is: a compacted file speaks for a lost end, too."""
    return within_all(merged(stored), had(topic))


def settled(topic: Topic, stored: Ranges) -> Ranges:
    """The messages for which nobody needs a copy: they can be read here, or nobody is owed them."""
    return without(had(topic), without(owed_by_any(topic), readable(topic, stored)))


def facts(topic: Topic, channel_name: str) -> ChannelFacts | None:
    """What may be told of a channel; None of one that is unknown.

    Of a channel that was deleted everything is finished but what waits at the topic. In proportion to what
    is not finished in order.
    """
    channel = topic.channels.get(channel_name)
    if channel is None:
        generation = topic.gone.get(channel_name)
        if generation is None:
            return None
        # What waits at the topic somebody is owed yet: elsewhere it may be this channel.
        waiting = topic.backlog.owed(0, topic.log.next_seq)
        return ChannelFacts(generation, without(had(topic), waiting))
    return ChannelFacts(
        channel.generation, finished_of(channel.finished, channel.end, channel.ahead, had(topic))
    )


def all_facts(topic: Topic) -> dict[str, ChannelFacts]:
    """The same of each channel that outlives the process.

    A carrier also tells of those that its home had and that were deleted here. Of one that was made and
    deleted meanwhile nobody has to hear, or it would be made there.
    """
    names = [name for name, channel in topic.channels.items() if not channel.ephemeral]
    if isinstance(topic, CarriedTopic):
        names += [name for name, one in topic.gone.items() if topic.known_at_home.get(name) == one]
    told = {name: facts(topic, name) for name in names}
    return {name: one for name, one in told.items() if one is not None}


def finished_of(finished: RangeSet, end: int, ahead: Ranges, of: Ranges) -> Ranges:
    """Of the ranges *of*, those that are finished below *end*, or *ahead* of it."""
    found: Ranges = list(ahead)
    for start, stop in within(of, 0, end):
        found += without([(start, stop)], finished.missing(start, stop))
    return within_all(merged(found), of)


def within_all(ranges: Ranges, others: Ranges) -> Ranges:
    """What lies in both; each is sorted and merged."""
    return [part for start, end in others for part in within(ranges, start, end)]


def owed_by_any(topic: Topic) -> Ranges:
    """What the topic or one of its channels owes: what a copy of the log is there for."""
    end = topic.log.next_seq
    owing = (topic.backlog, *topic.channels.values())
    return merged([part for one in owing for part in one.owed(0, end)])
