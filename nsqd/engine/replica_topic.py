"""A topic of another nsqd's log, of which this nsqd has a copy.

It is a topic like any other, with a log, a backlog and channels of its own. It has no publishers, and no
notes are written to its log. Changes are in its checkpoints. Operations on promoted copies are in `promoted`.
"""

from typing import Any

from nsqd.engine.channel import Channel
from nsqd.engine.clock import Wall
from nsqd.engine.settings import SettingsOf, no_policies
from nsqd.engine.topic import Topic
from nsqd.log.ids import MessageIds
from nsqd.log.ranges import Ranges
from nsqd.log.tail import Storage


class ReplicaTopic(Topic):
    """See the module."""

    __slots__ = ("finished_elsewhere", "ids", "origin", "suspended", "tombstoned")

    def __init__(
        self,
        name: str,
        origin: str,
        ids: MessageIds,
        store: Storage,
        wall: Wall | None = None,
        settings_of: SettingsOf = no_policies,
    ) -> None:
        """*origin* is the identity of the node that accepted the messages; *ids* are of its messages."""
        super().__init__(name, ids, store, 0, 0, wall, settings_of)
        self.origin = origin
        self.ids = ids
        # Messages that its channels withhold, including channels that are made later.
        self.suspended: Ranges = []
        # The topic was deleted here: no message that it had then is pending.
        self.tombstoned = False
        # Messages that other copies have finished and this one never had, by channel and generation.
        self.finished_elsewhere: dict[tuple[str, int], Ranges] = {}

    def __repr__(self) -> str:
        return f"<ReplicaTopic {self.name} of {self.origin} channels {list(self.channels)}>"

    def add_channel(self, name: str, kept: Ranges | None = None, generation: int | None = None) -> Channel:
        channel = super().add_channel(name, kept, generation)
        channel.ids = self.ids
        # What it lacks was finished elsewhere, perhaps after the channel was made there.
        channel.absent = []
        if self.suspended:
            channel.backlog.suspend(self.suspended)
        return channel

    def note(self, what: str, channel: str = "", **more: Any) -> None:  # noqa: ARG002 - the same for all
        """Nothing is written to the log; the next checkpoint has it."""
        self.changed = True

    def note_requeued(self, channel: Channel, seq: int, due_ns: int) -> None:  # noqa: ARG002 - the same for all
        """The next checkpoint has it."""
        self.changed = True

    def _watch_ids(self) -> None:
        """Nothing is published to it, so no ids are remembered."""
