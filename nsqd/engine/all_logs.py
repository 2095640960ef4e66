"""Figures of a channel, or a topic, together with the promoted copies beside it. Pure."""

from nsqd.engine.channel import Channel
from nsqd.engine.topic import Topic


def logs_of(channel: Channel) -> tuple[Channel, ...]:
    """The channel itself and those of promoted copies."""
    return (channel, *channel.siblings)


def topics_of(topic: Topic) -> tuple[Topic, ...]:
    """The topic itself and those of promoted copies."""
    return (topic, *topic.promoted)


def depth(channel: Channel, *, asks_holders: bool = False) -> int:
    """Messages that wait here, also for the dead letters.

    While the node asks the other holders of its logs, messages that are suspended count too: a depth of 0
    would say that nothing is pending.
    """
    logs = logs_of(channel)
    waiting = sum(one.backlog.pending.count + one.backlog.dead_letter_queue.count for one in logs)
    if not asks_holders:
        return waiting
    backlogs = [one.backlog for one in logs if one.backlog.suspended]
    return waiting + sum(max(0, one.count_unfinished(0, one.end) - one.count()) for one in backlogs)


def in_flight(channel: Channel) -> int:
    """Messages delivered and not answered."""
    return sum(one.backlog.in_flight.count for one in logs_of(channel))


def deferred(channel: Channel) -> int:
    """Messages held back until their time."""
    return sum(one.backlog.deferred.count for one in logs_of(channel))


def is_paused(channel: Channel) -> bool:
    """Whether messages wait here because the channel was paused, here or in a promoted copy."""
    return channel.paused or any(one.paused and one.backlog.count() > 0 for one in channel.siblings)


def is_topic_paused(topic: Topic) -> bool:
    """Whether messages wait at the topic because it was paused, here or in a promoted copy."""
    return topic.paused or any(one.paused and one.backlog.count() > 0 for one in topic.promoted)


def promoted_depth(channel: Channel) -> int:
    """Messages of promoted copies that are pending and not suspended: waiting, in flight and deferred."""
    return sum(one.backlog.count() for one in channel.siblings)


def pending_at_most(topic: Topic) -> int:
    """Messages of one log that are pending and not suspended, on the channel with most of them."""
    return max((one.backlog.count() for one in topic.channels.values()), default=topic.backlog.count())


def waiting_at(topic: Topic) -> int:
    """Messages that wait at the topic, for a first channel or to be unpaused, deferred ones included."""
    return sum(one.backlog.count() for one in topics_of(topic))


def promoted_waiting_at(topic: Topic) -> int:
    """Messages of promoted copies that wait at the topic, deferred ones included."""
    return sum(one.backlog.count() for one in topic.promoted)
