"""Serving the logs of other nsqd: taking one in, making it wait, letting go of it, and learning facts of it.

A log that is carried is a `CarriedTopic`, with channels of its own, beside the own topic of that name. Each
of its channels is a *sibling* of the own channel of that name: they share consumers, credit and pauses, and
deliver in turn; all else is separate. So an own topic without carried logs works as it always did.

To carry a log: make its topic (`nsqd.storage.carried.open_carried`, which may run in a thread), tell it what
others know (`learn`), and `attach` it. It gives out what `allow` says. To end: `stop`, wait until `in_flight`
is empty (messages that come back meanwhile do not wait any more), tell others `facts.all_facts`, `detach`.

When a home comes back, it must `hold_back` what a carrier may have in flight, `learn` what the carrier tells,
as often as it does, and `give_out` the rest. What `learn` is told becomes a note in the home's own log when
the turn ends, so ask for a turn: then the note exists before anything is said or served because of it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from nsqd.engine import facts, finishing, notes, withholding
from nsqd.engine.carried_topic import CarriedTopic
from nsqd.engine.channel import Channel
from nsqd.engine.facts import ChannelFacts
from nsqd.engine.topic import Topic
from nsqd.log.gaps import EVERYTHING
from nsqd.log.ranges import Ranges, merged, size_of, without

if TYPE_CHECKING:
    from nsqd.engine.broker import Broker

# How many ranges one note has.
_NOTED_AT_ONCE = 10_000
# What the figures count of a channel.
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


# --- taking one in, and letting go of it ---


def attach(broker: "Broker", carried: CarriedTopic, now_ns: int, serves: Ranges | None = None) -> Topic:
    """Serve this log, or only *serves* of it if that is given. Returns the own topic of its name.

    That topic and its channels are made if they do not exist, so that consumers find them. A log without a
    channel gives its messages to the channels that the own topic has, or to the first that is made.
    """
    own = broker.topic(carried.name, now_ns)
    own.carried.append(carried)
    allow(broker, carried, serves)
    for name in list(carried.channels):
        _join(broker, own, carried, name)
    if not carried.channels:
        carried.held = True
        names = [name for name, channel in own.channels.items() if not channel.ephemeral]
        for name in names:
            carried.add_channel(name, generation=own.draw_generation(name))
        carried.held = False
        carried.pump()
        for name in names:
            _join(broker, own, carried, name)
    return own


def _join(broker: "Broker", own: Topic, carried: CarriedTopic, name: str) -> None:
    host, sibling = broker.channel(own, name), carried.channels[name]
    if sibling not in host.siblings:
        # What its checkpoint has was counted by its home, or here before.
        _take_counts(sibling)
        host.share(sibling)
    broker.serve(host)
    broker.reschedule(sibling)


def allow(broker: "Broker", carried: CarriedTopic, serves: Ranges | None) -> None:
    """Give out *serves* of the log from now on, or all of it if *serves* is None.

    The rest stays owed, but neither waits nor counts in the depth. Messages in flight stay in flight.
    """
    carried.withheld = [] if serves is None else without([(0, EVERYTHING)], serves)
    # Messages that wait at the topic wait for a first channel, which will withhold them.
    for owed in carried.channels.values():
        withholding.withhold_only(owed, carried.withheld)
    for channel in carried.channels.values():
        channel.expiry_ns = 0
        broker.serve(channel)


def stop(broker: "Broker", carried: CarriedTopic) -> None:
    """Give out nothing more of this log."""
    allow(broker, carried, [])


def in_flight(carried: Topic) -> dict[str, Ranges]:
    """What consumers have of the log and may still answer, by channel; channels without any are left out.

    Messages on their way to the dead letters are included.
    """
    flying = {
        name: merged(channel.in_flight.ranges() + channel.dying.ranges())
        for name, channel in carried.channels.items()
    }
    return {name: ranges for name, ranges in flying.items() if ranges}


def detach(broker: "Broker", carried: CarriedTopic, *, force: bool = False) -> bool:
    """Stop serving this log; False if some of it is in flight, unless *force* takes that back.

    The own topic and its channels stay. The caller writes the last checkpoint and closes the store.
    """
    if in_flight(carried) and not force:
        return False
    own = broker.topics.get(carried.name)
    if own is not None and carried in own.carried:
        own.carried.remove(carried)
    for channel in carried.channels.values():
        if channel.host is not None:
            gather_counts(channel.host)
            channel.host.part(channel)
        channel.dying.clear()
        broker.forget(channel)
        # Whoever still refers to the channel, such as the dead letters, leaves it alone.
        channel.deleted = True
    carried.deleted = True
    return True


def gather_counts(host: Channel) -> None:
    """Count at the own channel what was done with carried messages since the last call; to be called before
    its counts are shown.

    The checkpoints of the own channel have what it counts. So a count that was shown does not fall when the
    carried log goes, or the node starts again.
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
    """Finish what lies before a position in each carried log, because the own channel is set to a position.

    It only goes forward: a message that its home has finished can only be given again by that home.
    """
    for one in topic.carried:
        sibling = one.channels.get(name)
        if sibling is not None:
            sibling.commit(position_of(one))
            broker.serve(sibling)


# --- what is told ---


def learn(
    broker: "Broker",
    topic: Topic,
    name: str,
    told: ChannelFacts,
    *,
    higher: bool,
    stored: Callable[[], Ranges],
) -> int:
    """Learn from another holder of the log what is finished on a channel; returns how many messages are news.

    An unknown channel is made: it owes the part of *stored* (`nsqd.storage.data_path.claim`) that is not
    finished. Of two channels of one name, that of the *higher* holder is kept. A channel that was deleted
    here is not made again. Hearing the same twice changes nothing.
    """
    channel = topic.channels.get(name)
    if channel is None:
        if topic.gone.get(name) == told.generation or (isinstance(topic, CarriedTopic) and topic.given_up):
            return 0
        channel = _make(broker, topic, name, told, stored())
    elif channel.generation != told.generation:
        if not higher or not isinstance(topic, CarriedTopic):
            return 0
        _forget_channel(broker, topic, channel)
        channel = _make(broker, topic, name, told, stored())
    return unite(broker, topic, channel, told.finished)


def _make(broker: "Broker", topic: Topic, name: str, told: ChannelFacts, stored: Ranges) -> Channel:
    kept = without(stored, told.finished)
    if not isinstance(topic, CarriedTopic):
        return broker.channel(topic, name, kept, told.generation)
    channel = topic.add_channel(name, kept, told.generation)
    own = broker.topics.get(topic.name)
    if own is not None and topic in own.carried:
        _join(broker, own, topic, name)
    return channel


def _forget_channel(broker: "Broker", carried: CarriedTopic, channel: Channel) -> None:
    """Drop a channel that is not the one of its home."""
    if channel.host is not None:
        gather_counts(channel.host)
        channel.host.part(channel)
    del carried.channels[channel.name]
    channel.deleted = True
    channel.empty()
    broker.forget(channel)


def unite(broker: "Broker", topic: Topic, channel: Channel, finished: Ranges) -> int:
    """Finish what another holder has finished, and note it; returns how many messages are news."""
    news = finishing.unite(channel, finished, topic.log.next_seq)
    if news:
        topic.changed = True
        if not isinstance(topic, CarriedTopic):
            for at in range(0, len(news), _NOTED_AT_ONCE):
                topic.note(notes.FINISH, channel.name, sequences=news[at : at + _NOTED_AT_ONCE])
            broker.dirty[topic] = None
        broker.serve(channel)
    return size_of(news)


# --- coming home ---


def hold_back(topic: Topic, ranges: Ranges, names: Iterable[str] | None = None) -> None:
    """Withhold these messages on the named channels or on all: another nsqd may have them in flight."""
    for name in topic.channels if names is None else names:
        if name in topic.channels:
            withholding.withhold(topic.channels[name], ranges)


def give_out(broker: "Broker", topic: Topic, still: Mapping[str, Ranges]) -> None:
    """Give out what was held back, except what is *still* in flight elsewhere, by channel."""
    for name, channel in topic.channels.items():
        if channel.withheld:
            withholding.withhold_only(channel, facts.within_all(channel.withheld, still.get(name, [])))
            channel.expiry_ns = 0
            broker.serve(channel)
