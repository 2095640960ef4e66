"""Checking what an owner must deliver against its policy before anything more is accepted."""

from typing import Final

from nsqd.engine.backlog import Backlog
from nsqd.engine.channel import Channel
from nsqd.engine.settings import Settings
from nsqd.engine.staging import Bound
from nsqd.engine.topic import Refused, Topic
from nsqd.engine.weight import excess
from nsqd.log.ranges import without


class Full(Refused):
    """A channel, or a topic without one, must deliver as much as its policy allows."""

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
            awaiting_registration, held_size = self._held_for(channel)
            self._admit(channel.backlog, channel.settings, count + awaiting_registration, size + held_size)

    def _admit(self, backlog: Backlog, settings: Settings, count: int, size: int) -> None:
        log = self._topic.log
        if settings.bounded and not settings.drop_oldest and excess(backlog, settings, log, count, size):
            raise Full

    def _held_for(self, channel: Channel) -> tuple[int, int]:
        """The number and bytes of the messages that the topic holds back and the channel will deliver."""
        settings, backlog = channel.settings, self._topic.backlog
        if settings.drop_oldest or not settings.bounded:
            return 0, 0
        # What is acknowledged already is not handed over: see `Topic.pump`.
        parts = without([(channel.committed, backlog.end)], channel.ahead)
        count = sum([backlog.count_unfinished(start, end) for start, end in parts])
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
