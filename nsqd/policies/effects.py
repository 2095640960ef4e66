"""The retained messages that a change of policies would delete."""

from collections.abc import Iterator
from typing import Final

from nsqd.engine.backlog import Backlog
from nsqd.engine.broker import Broker
from nsqd.engine.settings import Settings, SettingsOf
from nsqd.engine.topic import Topic
from nsqd.log.frames import Block
from nsqd.log.gaps import CannotRead
from nsqd.log.ranges import Ranges, size_of

_FOREVER: Final = 1 << 63


def would_delete(broker: Broker, changed: SettingsOf, now_ns: int) -> Iterator[str]:
    """What would be deleted with these settings: a sentence for each topic and channel.

    *now_ns* is the time on the wall clock.
    """
    for topic in broker.topics.values():
        new = changed(topic.name, "")
        if not topic.ephemeral and keeps_less(topic.settings, new):
            yield f"topic {topic.name} would keep less of what is finished"
        yield from _of(f"topic {topic.name}", topic, topic.backlog, topic.settings, new, now_ns)
        for channel in topic.channels.values():
            name = f"channel {topic.name}/{channel.name}"
            of_channel = changed(topic.name, channel.name)
            held = channel.topic_backlog_ranges(topic.backlog)
            yield from _of(name, topic, channel.backlog, channel.settings, of_channel, now_ns, held)


def keeps_less(old: Settings, new: Settings) -> bool:
    """Whether *new* retains fewer finished messages. Each of the two bounds is compared by itself."""
    if not (old.retain_time_ns or old.retain_bytes):
        return False
    if not (new.retain_time_ns or new.retain_bytes):
        return True
    return (new.retain_time_ns or _FOREVER) < (old.retain_time_ns or _FOREVER) or (
        new.retain_bytes or _FOREVER
    ) < (old.retain_bytes or _FOREVER)


def _of(
    name: str,
    topic: Topic,
    backlog: Backlog,
    old: Settings,
    new: Settings,
    now_ns: int,
    held: Ranges | None = None,
) -> Iterator[str]:
    """*held* are the messages that the topic delivers to channels when it is unpaused: they count as well."""
    held = held or []
    held_count = size_of(held)
    count = backlog.count() + held_count
    if new.drop_oldest and not (old.drop_oldest and _as_wide(old, new)):
        excess = count - new.max_depth if new.max_depth else 0
        if excess > 0:
            oldest = min(excess, backlog.pending.count + held_count)
            yield f"{name} would drop the oldest {oldest} of {count} messages"
        elif new.max_bytes and _weight(topic, backlog, held_count) > new.max_bytes:
            yield f"{name} would drop what is more than {new.max_bytes} bytes"
    shorter = new.ttl_ns and (new.ttl_ns < old.ttl_ns or not old.ttl_ns)
    if shorter and count and _oldest_ns(topic, backlog, held) + new.ttl_ns <= now_ns:
        yield f"{name} would lose those of {count} messages that are older than the ttl"


def _weight(topic: Topic, backlog: Backlog, held_count: int) -> int:
    """About how many bytes *backlog* has, with its share of what the topic holds."""
    weight = backlog.weight.of(backlog, topic.log)
    if held_count:
        weight += topic.backlog.weight.of(topic.backlog, topic.log) * held_count // topic.backlog.count()
    return weight


def _oldest_ns(topic: Topic, backlog: Backlog, held: Ranges) -> int:
    """When the oldest message that is pending was published; 0 when that is not known."""
    seq = backlog.lowest()
    if seq is None and held:
        seq = held[0][0]
    try:
        found = None if seq is None else topic.log.read(seq, seq + 1)
    except CannotRead:
        return 0
    return found.timestamp_ns(seq) if seq is not None and isinstance(found, Block) else 0


def _as_wide(old: Settings, new: Settings) -> bool:
    """Whether everything within the old bounds is within the new ones."""
    return (old.max_depth or _FOREVER) <= (new.max_depth or _FOREVER) and (old.max_bytes or _FOREVER) <= (
        new.max_bytes or _FOREVER
    )
