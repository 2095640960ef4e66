"""Statistics of a channel, or a topic, including its promoted copies. Pure."""

from collections.abc import Sequence
from typing import TypeAlias

from nsqd.engine.channel import Channel
from nsqd.engine.topic import Topic

_Owner: TypeAlias = Channel | Topic


def copies_of(owner: _Owner) -> Sequence[_Owner]:
    """The channels, or the topics, of promoted copies."""
    return owner.siblings if isinstance(owner, Channel) else owner.promoted


def logs_of(owner: _Owner) -> Sequence[_Owner]:
    """The channel or topic itself, and those of promoted copies."""
    return (owner, *copies_of(owner))


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
    """Messages deferred until their time."""
    return sum(one.backlog.deferred.count for one in logs_of(channel))


def is_paused(owner: _Owner) -> bool:
    """Whether messages are pending here because the channel or topic is paused, or in a promoted copy."""
    return owner.paused or any(one.paused and one.backlog.count() > 0 for one in copies_of(owner))


def count(owner: _Owner) -> int:
    """Messages that are pending and not suspended, in flight and deferred ones included."""
    return sum(one.backlog.count() for one in logs_of(owner))


def promoted_count(owner: _Owner) -> int:
    """Those of :func:`count` that are of promoted copies."""
    return sum(one.backlog.count() for one in copies_of(owner))
