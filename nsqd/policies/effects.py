"""What a change of policies would delete of the messages that are kept now."""

from collections.abc import Iterator
from typing import Final

from nsqd.engine.backlog import Backlog
from nsqd.engine.broker import Broker
from nsqd.engine.settings import Settings, SettingsOf
from nsqd.engine.topic import Topic
from nsqd.log.frames import Block
from nsqd.log.gaps import CannotRead

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
            yield from _of(name, topic, channel.backlog, channel.settings, of_channel, now_ns)


def keeps_less(old: Settings, new: Settings) -> bool:
    """Whether *new* keeps less of what is finished. Each of the two bounds is compared by itself."""
    if not (old.retain_time_ns or old.retain_bytes):
        return False
    if not (new.retain_time_ns or new.retain_bytes):
        return True
    return (new.retain_time_ns or _FOREVER) < (old.retain_time_ns or _FOREVER) or (
        new.retain_bytes or _FOREVER
    ) < (old.retain_bytes or _FOREVER)


def _of(
    name: str, topic: Topic, backlog: Backlog, old: Settings, new: Settings, now_ns: int
) -> Iterator[str]:
    if new.drop_oldest and not (old.drop_oldest and _as_wide(old, new)):
        excess = backlog.count() - new.max_depth if new.max_depth else 0
        if excess > 0:
            oldest = min(excess, backlog.pending.count)
            yield f"{name} would drop the oldest {oldest} of {backlog.count()} messages"
        elif new.max_bytes and backlog.weight.of(backlog, topic.log) > new.max_bytes:
            yield f"{name} would drop what is more than {new.max_bytes} bytes"
    shorter = new.ttl_ns and (new.ttl_ns < old.ttl_ns or not old.ttl_ns)
    if shorter and backlog.count() and _oldest_ns(topic, backlog) + new.ttl_ns <= now_ns:
        yield f"{name} would lose those of {backlog.count()} messages that are older than the ttl"


def _oldest_ns(topic: Topic, backlog: Backlog) -> int:
    """When the oldest message that is pending was published; 0 when that is not known."""
    seq = backlog.lowest()
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
