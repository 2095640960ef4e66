"""Delivers promoted copies of other logs, and merges finished messages from other copies.

A promoted copy has a `Topic` with an origin for each of its topics, next to the own topic of that name. Each
of its channels is a *sibling* of the own channel of that name: they share consumers, credit and pauses, and
deliver in turn; all else is separate. So an own topic without promoted copies works as it always did.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nsqd.engine.channel import Channel
from nsqd.engine.finished_ranges import FinishedRanges
from nsqd.engine.topic import Topic
from nsqd.log.gaps import EVERYTHING
from nsqd.log.ranges import Ranges, merged, size_of, without

if TYPE_CHECKING:
    from nsqd.engine.broker import Broker

# The counters of a channel.
_COUNTS: Final = (
    "requeue_count",
    "returned_count",
    "timeout_count",
    "dropped_count",
    "expired_count",
    "dead_count",
    "lost_count",
    "delivered_count",
)


# --- attach and detach ---


def attach(broker: "Broker", copy: Topic, now_ns: int) -> Topic:
    """Deliver this topic of a promoted copy. Returns the own topic of its name.

    That topic and its channels are made if they do not exist, so that consumers find them. A copy without a
    channel delivers its messages to the channels of the own topic, or to the first that is made. What is
    in `suspended` is not delivered.
    """
    own = broker.topic(copy.name, now_ns)
    own.promoted.append(copy)
    for channel in copy.channels.values():
        channel.backlog.suspend(copy.suspended)
    for name in list(copy.channels):
        _join(broker, own, copy, name)
    if not copy.channels:
        copy.awaiting_registration = True
        names = [name for name, channel in own.channels.items() if not channel.ephemeral]
        for name in names:
            copy.add_sibling(own, name)
        copy.awaiting_registration = False
        copy.pump()
        for name in names:
            _join(broker, own, copy, name)
    return own


def _join(broker: "Broker", own: Topic, copy: Topic, name: str) -> None:
    host, sibling = broker.channel(own, name), copy.channels[name]
    if sibling not in host.siblings:
        # The counts of its checkpoint were counted by its owner, or here before.
        _take_counts(sibling)
        host.share(sibling)
    broker.serve(host)
    broker.reschedule(sibling)


def in_flight(copy: Topic) -> dict[str, Ranges]:
    """The messages in flight of a copy, by channel; channels without any are left out.

    Messages on their way to the dead letters are included.
    """
    flying = {
        name: merged(channel.backlog.in_flight.ranges() + channel.backlog.dead_letter_queue.ranges())
        for name, channel in copy.channels.items()
    }
    return {name: ranges for name, ranges in flying.items() if ranges}


def detach(broker: "Broker", copy: Topic, *, force: bool = False) -> bool:
    """Stop delivering this topic; False if messages of it are in flight, unless *force* takes them back.

    The own topic and its channels stay. The caller writes the last checkpoint and closes the store.
    """
    if in_flight(copy) and not force:
        return False
    own = broker.topics.get(copy.name)
    if own is not None and copy in own.promoted:
        own.promoted.remove(copy)
    for channel in copy.channels.values():
        if channel.host is not None:
            gather_counts(channel.host)
            channel.host.unshare(channel)
        channel.backlog.dead_letter_queue.remove([(0, EVERYTHING)])
        broker.forget(channel)
        # The dead letters may still refer to the channel.
        channel.deleted = True
    copy.deleted = True
    return True


def gather_counts(host: Channel) -> None:
    """Add the counts of promoted copies since the last call to the own channel, before counts are shown.

    The checkpoints of the own channel have its counts. So a count that was shown does not fall when a copy is
    dropped, or the node starts again.
    """
    for sibling in host.siblings:
        for name, count in _take_counts(sibling).items():
            setattr(host, name, getattr(host, name) + count)
            host.changed = True
        host.zones = [sum(pair) for pair in zip(host.zones, sibling.zones, strict=True)]
        sibling.zones = [0, 0, 0]


def _take_counts(sibling: Channel) -> dict[str, int]:
    """The counts that are not 0, which then begin again."""
    counts = {name: getattr(sibling, name) for name in _COUNTS}
    for name in _COUNTS:
        setattr(sibling, name, 0)
    return {name: count for name, count in counts.items() if count}


def pass_over(broker: "Broker", topic: Topic, name: str, position_of: Callable[[Topic], int]) -> None:
    """Finish all before a position in each promoted copy, because the own channel is set to a position.

    It only goes forward: a message that another owner has finished is not delivered again here.
    """
    for one in topic.promoted:
        sibling = one.channels.get(name)
        if sibling is not None:
            sibling.commit(position_of(one))
            broker.serve(sibling)


# --- channel state of other copies ---


def merge(
    broker: "Broker", topic: Topic, name: str, received: FinishedRanges, stored: Callable[[], Ranges]
) -> int:
    """Merge the finished messages of a channel in another copy of the log; returns how many are new.

    An unknown channel is made: the part of *stored* that is not finished is pending on it. A channel of
    another generation, or one that was deleted here, does not change. A repeated merge changes nothing.
    """
    channel = topic.channels.get(name)
    if channel is None:
        if topic.deleted_channels.get(name) == received.generation or topic.tombstoned:
            return 0
        channel = _create(broker, topic, name, received, stored())
    elif channel.generation != received.generation:
        return 0
    return merge_finished(broker, topic, channel, received.finished)


def _create(broker: "Broker", topic: Topic, name: str, received: FinishedRanges, stored: Ranges) -> Channel:
    queue = without(stored, received.finished)
    if not topic.origin:
        return broker.channel(topic, name, queue, received.generation)
    channel = topic.add_channel(name, queue, received.generation)
    own = broker.topics.get(topic.name)
    if own is not None and topic in own.promoted:
        _join(broker, own, topic, name)
    return channel


def merge_finished(broker: "Broker", topic: Topic, channel: Channel, finished: Ranges) -> int:
    """Finish what another copy has finished; the next checkpoint has it. Returns how many are news."""
    news = channel.merge_finished(finished, topic.log.next_seq)
    if news:
        topic.changed = True
        broker.serve(channel)
    return size_of(news)
