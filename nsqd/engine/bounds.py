"""Checking what an owner owes against its policy before anything more is accepted."""

from typing import Final

from nsqd.engine.owed import Owed
from nsqd.engine.settings import Settings
from nsqd.engine.staging import Bound
from nsqd.engine.topic import Refused, Topic
from nsqd.engine.weight import excess


class Full(Refused):
    """A channel, or a topic without one, owes as much as its policy allows."""

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
        if not topic.flowing:
            self._admit(topic.backlog, topic.settings, count, size)
        for channel in topic.channels.values():
            self._admit(channel, channel.settings, count, size)

    def _admit(self, owed: Owed, settings: Settings, count: int, size: int) -> None:
        log = self._topic.log
        if settings.bounded and not settings.drop_oldest and excess(owed, settings, log, count, size):
            raise Full


class _Nothing:
    """Refuses everything."""

    def admit(self, count: int, size: int) -> None:  # noqa: ARG002 - the same for all
        raise DiskLow


NOTHING_MORE: Final = _Nothing()


def bound_of(topic: Topic) -> Bound | None:
    """The bound to ask before anything is published to the topic; None while nothing is bounded."""
    settings = [topic.settings, *(channel.settings for channel in topic.channels.values())]
    return _Policy(topic) if any(one.bounded and not one.drop_oldest for one in settings) else None
