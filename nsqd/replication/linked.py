"""A connection to a keeper, as everybody sees it who does not make it: the home and its drivers."""

from typing import Protocol

from nsqd.log.segment import Segment
from nsqd.log.writer import LogWriter
from nsqd.replication.choosing import Appointed
from nsqd.replication.outgoing import SaidToKeeper
from nsqd.storage.slots import CheckpointJob


class Linked(Protocol):
    """What a `HomeLink` is to its home."""

    appointed: Appointed
    out: SaidToKeeper
    # To a keeper of former days, which is told that its home is there.
    visit: bool
    # The keeper has no older copies of the home's logs.
    has_no_older: bool

    @property
    def is_streamed_to(self) -> bool:
        """Whether both have met: what is written from now on is sent there."""

    @property
    def is_up(self) -> bool:
        """Whether it is streamed to, and answers in time."""

    @property
    def is_filled(self) -> bool:
        """Whether the keeper has all that the home has, durably, and its word counts."""

    def counts(self, log: LogWriter) -> bool:
        """Whether the keeper's word counts for a topic."""

    def tick(self, now_ns: int) -> None:
        """Look at the time."""

    def end(self, reason: str) -> None:
        """The connection is gone, or is to go."""

    def appended(self, log: LogWriter, segment: Segment, offset: int, pieces: list[bytes]) -> None:
        """The home has written this just now."""

    def checkpointed(self, log: LogWriter, job: CheckpointJob) -> None:
        """The home has written a checkpoint."""

    def look_at(self, log: LogWriter) -> None:
        """Files of a log have gone, or others took their place."""

    def deleted(self, log: LogWriter, name: str) -> None:
        """A topic is gone."""

    def say_who_keeps(self) -> None:
        """Tell the keeper of the others, which it asks when the home is gone."""
