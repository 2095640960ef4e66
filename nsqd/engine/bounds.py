"""The bounds that policies set on a backlog: a publish is refused, and old or expired messages are dropped.

A channel is checked when it is served and when the next message expires. One without a policy is not checked.
"""

from typing import Final

from nsqd.engine.backlog import Backlog
from nsqd.engine.channel import Channel
from nsqd.engine.settings import Settings
from nsqd.engine.staging import Bound
from nsqd.engine.topic import Refused, Topic
from nsqd.log.cursor import Cursor
from nsqd.log.frames import Block
from nsqd.log.gaps import CannotRead
from nsqd.log.ranges import merged, size_of
from nsqd.log.tail import MessageLog

# Without consumers, the search for expired messages runs no more often than this.
_EXPIRY_CHECK_NS: Final = 100_000_000
# At most this many messages from before the clock was set back are checked: some ten milliseconds' work.
MAX_EXAMINED: Final = 1 << 16
# Messages that cannot be read are tried again after this time.
_RETRY_NS: Final = 1_000_000_000


class Full(Refused):
    """The backlog of a channel, or of a topic without one, has reached the bound of its policy."""

    def __init__(self) -> None:
        super().__init__("topic is full")


class DiskLow(Refused):
    """Free disk space is below the watermark."""

    def __init__(self) -> None:
        super().__init__("disk is nearly full")


class _Policy:
    """Refuses messages that are too many for the topic or for one of its channels."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def admit(self, count: int, size: int) -> None:
        topic = self._topic
        count += topic.staged_count
        size += topic.staged_bytes
        if topic.flowing:
            for channel in topic.channels.values():
                self._admit(channel.backlog, channel.settings, count, size)
            return
        self._admit(topic.backlog, topic.settings, count, size)
        for channel in topic.channels.values():
            awaiting_registration, held_size = self._topic_backlog_for(channel)
            self._admit(channel.backlog, channel.settings, count + awaiting_registration, size + held_size)

    def _admit(self, backlog: Backlog, settings: Settings, count: int, size: int) -> None:
        log = self._topic.log
        if settings.bounded and not settings.drop_oldest and excess(backlog, settings, log, count, size):
            raise Full

    def _topic_backlog_for(self, channel: Channel) -> tuple[int, int]:
        """The number and bytes of the messages in the topic's own backlog that the channel will deliver."""
        settings, backlog = channel.settings, self._topic.backlog
        if settings.drop_oldest or not settings.bounded:
            return 0, 0
        count = size_of(channel.topic_backlog_ranges(backlog))
        if not count or not settings.max_bytes:
            return count, 0
        return count, backlog.weight.of(backlog, self._topic.log) * count // backlog.count()


class _Nothing:
    """Refuses everything."""

    def admit(self, count: int, size: int) -> None:  # noqa: ARG002 - the same for all
        raise DiskLow


NOTHING_MORE: Final = _Nothing()


def bound_of(topic: Topic) -> Bound | None:
    """The bound to ask before anything is published to the topic; None while nothing is bounded."""
    settings = [topic.settings, *(channel.settings for channel in topic.channels.values())]
    return _Policy(topic) if any(one.bounded and not one.drop_oldest for one in settings) else None


def apply_limits(channel: Channel, now_ns: int) -> int:
    """Apply the channel's policy; returns when it is to be applied again, 0 for never."""
    settings = channel.settings
    if settings.drop_oldest and (dropped := drop_oldest(channel.backlog, settings, channel.log)):
        channel.dropped_count += dropped
        channel.changed = True
    if not settings.ttl_ns or not channel.backlog.pending.count:
        return 0
    if now_ns >= channel.expiry_ns:
        _expire(channel, settings, now_ns)
    return max(channel.expiry_ns, now_ns + _EXPIRY_CHECK_NS)


def excess(backlog: Backlog, settings: Settings, log: MessageLog, count: int = 0, size: int = 0) -> int:
    """How many messages are beyond the bound once *count* more of *size* bytes have come."""
    beyond = backlog.count() + count - settings.max_depth if settings.max_depth else 0
    if settings.max_bytes:
        bytes_beyond = backlog.weight.of(backlog, log) + size - settings.max_bytes
        if bytes_beyond > 0:
            beyond = max(beyond, -(-bytes_beyond // backlog.weight.mean))
    return max(0, beyond)


def drop_oldest(backlog: Backlog, settings: Settings, log: MessageLog) -> int:
    """Drop the oldest pending messages, as many as exceed the bound; returns how many."""
    dropped = 0
    # With a bound in bytes, only another check shows whether that was enough.
    while (count := min(excess(backlog, settings, log), backlog.pending.count)) > 0:
        backlog.remove(backlog.pending.first(count))
        backlog.weight.forget()
        dropped += count
    return dropped


def _expire(channel: Channel, settings: Settings, now_ns: int) -> None:
    """Drop the pending messages that were published longer ago than the policy allows."""
    log, offset_ns = channel.log, channel.wall.offset_ns
    wall_ns = now_ns + offset_ns
    oldest_ns = wall_ns - settings.ttl_ns
    try:
        position = Cursor(log).seek(oldest_ns + 1)
        found = log.read(position, position + 1) if position < log.next_seq else None
        published_ns = found.timestamp_ns(position) if isinstance(found, Block) else wall_ns
        if published_ns > wall_ns:
            start = max(position, channel.backlog.finished.floor)
            position, published_ns = _behind_future(log, start, oldest_ns, wall_ns)
    except CannotRead:
        channel.expiry_ns = now_ns + _RETRY_NS
        return
    channel.expiry_ns = max(now_ns + 1, published_ns - offset_ns + settings.ttl_ns)
    # Later messages do not expire before that, so what comes back from there on needs no other look.
    channel.expired_below = position
    expired = merged(channel.backlog.pending.below(position))
    if expired:
        channel.backlog.discard(expired)
        channel.expire_ranges(expired)


def _behind_future(log: MessageLog, start: int, oldest_ns: int, wall_ns: int) -> tuple[int, int]:
    """Where the messages end that are older than *oldest_ns*, and when the next one was published.

    The wall clock was set back since the message at *start* was published, so its time says nothing. It was
    published before those that follow. Raises CannotRead.
    """
    position = start
    # Not through a long log: the rest expires when these are gone, or when the clock has caught up.
    for begin, end, found in Cursor(log).scan(start, start + MAX_EXAMINED):
        if not isinstance(found, Block):
            continue
        for seq in range(begin, end):
            published_ns = found.timestamp_ns(seq)
            if published_ns <= oldest_ns:
                position = seq + 1
            elif published_ns <= wall_ns:
                return position, published_ns
    return position, wall_ns
