"""How much somebody owes, held against what a policy allows, before anything more is taken."""

from typing import Final

from nsqd.engine.owed import Owed
from nsqd.engine.settings import Settings
from nsqd.engine.topic import Bound, Refused, Topic
from nsqd.engine.weight import excess


class Full(Refused):
    """A channel owes as much as its policy allows."""

    def __init__(self) -> None:
        super().__init__("topic is full")


class DiskLow(Refused):
    """What is free of the disk is below the watermark."""

    def __init__(self) -> None:
        super().__init__("disk is nearly full")


class _Policy:
    """Refuses what is too much for the topic or for one of its channels."""

    def admit(self, topic: Topic, count: int, size: int) -> None:
        count += topic.staged_count
        size += topic.staged_bytes
        if not topic.flowing:
            self._admit(topic.backlog, topic.settings, topic, count, size)
        for channel in topic.channels.values():
            self._admit(channel, channel.settings, topic, count, size)

    @staticmethod
    def _admit(owed: Owed, settings: Settings, topic: Topic, count: int, size: int) -> None:
        if settings.bounded and not settings.drop_oldest and excess(owed, settings, topic.log, count, size):
            raise Full


class _Nothing:
    """Refuses everything."""

    def admit(self, topic: Topic, count: int, size: int) -> None:  # noqa: ARG002 - the same for all
        raise DiskLow


_POLICY: Final = _Policy()
NOTHING_MORE: Final = _Nothing()


def bound_of(topic: Topic) -> Bound | None:
    """What is to be asked before anything is published to the topic; None while nothing is bounded."""
    settings = [topic.settings, *(channel.settings for channel in topic.channels.values())]
    return _POLICY if any(one.bounded and not one.drop_oldest for one in settings) else None
