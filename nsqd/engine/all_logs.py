"""Figures of a channel, or a topic, together with the carried logs that are served beside it. Pure."""

from nsqd.engine.channel import Channel
from nsqd.engine.topic import Topic


def logs_of(channel: Channel) -> tuple[Channel, ...]:
    """The channel itself and those of carried logs."""
    return (channel, *channel.siblings)


def topics_of(topic: Topic) -> tuple[Topic, ...]:
    """The topic itself and those that are carried."""
    return (topic, *topic.carried)


def depth(channel: Channel, *, leaving: bool = False) -> int:
    """Messages that wait here, also for the dead letters, and own ones that are held back for a moment.

    A depth of 0 would say that nothing is owed. So while a home asks its keepers, what a carrier has
    delivered counts here too, for --carry-ask at most; what is in flight there, until it is answered. On a
    node that is *leaving*, what is held back is held for the taker, who counts it.
    """
    waiting = sum(one.depth + one.dying.count for one in logs_of(channel))
    return waiting if leaving else waiting + held_back(channel)


def held_back(channel: Channel) -> int:
    """Messages of the own log that are owed and withheld. What is withheld of a carried log is its home's."""
    if not channel.withheld:
        return 0
    return max(0, channel.count_owed(0, channel.end) - channel.count())


def in_flight(channel: Channel) -> int:
    """Messages delivered and not answered."""
    return sum(one.in_flight.count for one in logs_of(channel))


def deferred(channel: Channel) -> int:
    """Messages held back until their time."""
    return sum(len(one.deferred) for one in logs_of(channel))


def is_paused(channel: Channel) -> bool:
    """Whether messages wait here because the channel was paused, here or at the home of a carried log."""
    return channel.paused or any(one.paused and one.count() > 0 for one in channel.siblings)


def is_topic_paused(topic: Topic) -> bool:
    """Whether messages wait at the topic because it was paused, here or at the home of a carried log."""
    return topic.paused or any(one.paused and one.backlog.count() > 0 for one in topic.carried)


def carried_depth(channel: Channel) -> int:
    """Messages of other nsqd that are owed here and not withheld: waiting, in flight and deferred."""
    return sum(one.count() for one in channel.siblings)


def owed_at_most(topic: Topic) -> int:
    """Messages of one log that are owed and not withheld, on the channel that owes most of them."""
    return max((one.count() for one in topic.channels.values()), default=topic.backlog.count())


def waiting_at(topic: Topic) -> int:
    """Messages that wait at the topic, for a first channel or to be unpaused, deferred ones included."""
    return sum(one.backlog.depth + len(one.backlog.deferred) for one in topics_of(topic))


def carried_waiting_at(topic: Topic) -> int:
    """Messages of other nsqd that wait at the topic, deferred ones included."""
    return sum(one.backlog.depth + len(one.backlog.deferred) for one in topic.carried)
