"""A topic of another nsqd that is served here: the log of that nsqd, and what is owed of it.

It is a topic like any other, with a log, a backlog and channels of its own, but nobody publishes to it and no
notes are written to its log, whose bytes are those of its home. Changes are in checkpoints of the nsqd that
carries it. The operations on it are in `carried`.
"""

from typing import Any

from nsqd.engine.channel import Channel
from nsqd.engine.clock import Wall
from nsqd.engine.settings import SettingsOf, no_policies
from nsqd.engine.topic import Topic
from nsqd.log.ids import MessageIds
from nsqd.log.ranges import Ranges
from nsqd.log.tail import BlockSource


class CarriedTopic(Topic):
    """See the module."""

    __slots__ = ("given_up", "home", "ids", "known_at_home", "unfounded", "withheld")

    def __init__(
        self,
        name: str,
        home: str,
        ids: MessageIds,
        source: BlockSource,
        wall: Wall | None = None,
        settings_of: SettingsOf = no_policies,
    ) -> None:
        """*home* names the data path whose log it is; *ids* are those of its messages."""
        super().__init__(name, ids, source, 0, 0, wall, settings_of)
        self.home = home
        self.ids = ids
        # The channels that its home had, and their generations.
        self.known_at_home: dict[str, int] = {}
        # Messages that its channels withhold, including channels that are made later.
        self.withheld: Ranges = []
        # The topic was deleted here: nobody is owed any message that it had then.
        self.given_up = False
        # Neither a checkpoint of its home nor the beginning of its log is here: any other holder knows better
        # who is owed its messages.
        self.unfounded = False

    def __repr__(self) -> str:
        return f"<CarriedTopic {self.name} of {self.home} channels {list(self.channels)}>"

    def add_channel(self, name: str, kept: Ranges | None = None, generation: int | None = None) -> Channel:
        channel = super().add_channel(name, kept, generation)
        channel.ids = self.ids
        if self.withheld:
            channel.withheld = self.withheld
            channel.take_out_waiting(self.withheld)
        return channel

    def note(self, what: str, channel: str = "", **more: Any) -> None:  # noqa: ARG002 - the same for all
        """Nothing is written to the log; the next checkpoint has it."""
        self.changed = True

    def note_put_off(self, channel: Channel, seq: int, due_ns: int) -> None:  # noqa: ARG002 - the same for all
        """The next checkpoint has it."""
        self.changed = True

    def _watch_ids(self) -> None:
        """Nothing is published to it, so no ids are remembered."""
