"""The messages that a draining node still must deliver. Ephemeral topics and channels have no pending
messages.
"""

from dataclasses import dataclass
from typing import Any

from nsqd.engine import all_logs
from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel
from nsqd.engine.topic import Topic


class Unread:
    """Remembers what had no reader at each check: its time may be too short, but never too long."""

    def __init__(self) -> None:
        self._since_ns: dict[Topic | Channel, int] = {}

    def update(self, broker: Broker, now_ns: int) -> None:
        """Note what has no reader now; to be called every few seconds."""
        exclusive: list[Topic | Channel] = []
        for topic in broker.topics.values():
            if not topic.channels:
                exclusive.append(topic)
            exclusive += [channel for channel in topic.channels.values() if not channel.consumers]
        known = self._since_ns
        self._since_ns = {thing: known.get(thing, now_ns) for thing in exclusive}

    def for_ms(self, thing: Topic | Channel, now_ns: int) -> int | None:
        """How long *thing* has had no reader; None when it has one."""
        has_readers = thing.channels if isinstance(thing, Topic) else thing.consumers
        if has_readers:
            return None
        return max(0, now_ns - self._since_ns.get(thing, now_ns)) // 1_000_000


@dataclass(frozen=True, slots=True)
class DrainReport:
    """Messages of a channel, or of a topic before its channels: pending, in flight or deferred."""

    waiting: int
    in_flight: int
    deferred: int

    @property
    def total(self) -> int:
        return self.waiting + self.in_flight + self.deferred


def of_channel(channel: Channel) -> DrainReport:
    return DrainReport(all_logs.depth(channel), all_logs.in_flight(channel), all_logs.deferred(channel))


def of_backlog(topic: Topic) -> DrainReport:
    """Messages that wait at the topic itself: for a first channel, or for the topic to be unpaused."""
    waiting = sum(one.backlog.pending.count for one in all_logs.logs_of(topic))
    return DrainReport(waiting, 0, all_logs.count(topic) - waiting)


def report(broker: Broker, unread: Unread, now_ns: int) -> dict[str, Any]:
    """The body of ``GET /drain``; only topics and channels with remaining messages are listed."""
    topics = [_topic(topic, unread, now_ns) for topic in broker.topics.values() if not topic.ephemeral]
    topics = sorted((topic for topic in topics if topic["remaining"]), key=lambda topic: topic["topic_name"])
    remaining = sum(topic["remaining"] for topic in topics)
    return {
        "draining": broker.leaving,
        # Staged messages are stored in a moment, and pending then. A node that asks the other holders of its
        # log does not know yet its pending messages.
        "drained": broker.draining and not remaining and broker.is_idle and not broker.awaits_channel_state,
        "remaining": remaining,
        "topics": topics,
    }


def _topic(topic: Topic, unread: Unread, now_ns: int) -> dict[str, Any]:
    channels = [
        _channel(channel, unread, now_ns) for channel in topic.channels.values() if not channel.ephemeral
    ]
    channels = sorted(
        (channel for channel in channels if channel["remaining"]), key=lambda channel: channel["channel_name"]
    )
    backlog = of_backlog(topic)
    return {
        "topic_name": topic.name,
        "remaining": backlog.total + sum(channel["remaining"] for channel in channels),
        "backlog": backlog.total,
        "channel_count": len(topic.channels),
        "unread_ms": unread.for_ms(topic, now_ns),
        "paused": all_logs.is_paused(topic),
        "channels": channels,
    }


def _channel(channel: Channel, unread: Unread, now_ns: int) -> dict[str, Any]:
    remains = of_channel(channel)
    return {
        "channel_name": channel.name,
        "remaining": remains.total,
        "depth": remains.waiting,
        "in_flight_count": remains.in_flight,
        "deferred_count": remains.deferred,
        "due_in_ms": _due_in_ms(channel, remains, now_ns),
        "client_count": len(channel.consumers),
        "unread_ms": unread.for_ms(channel, now_ns),
        "paused": all_logs.is_paused(channel),
    }


def _due_in_ms(channel: Channel, remains: DrainReport, now_ns: int) -> int | None:
    """The time until a message can be delivered, if all that remains is deferred; None otherwise."""
    if not remains.deferred or remains.total > remains.deferred:
        return None
    deferred = [one.backlog.deferred for one in all_logs.logs_of(channel)]
    first_ns = min(one.first_due_ns() for one in deferred if one.count)
    return max(0, first_ns - now_ns) // 1_000_000
