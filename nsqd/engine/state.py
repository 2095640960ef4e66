"""The pending messages of a topic and its channels, as values: the contents of a checkpoint, from which a
start begins.

Finished messages are facts that only grow, and so are due times and attempts (see `journal`). So a state can
be brought up to date with what was added since: the `Additions`.
"""

from array import array
from dataclasses import dataclass, field
from typing import Final

from nsqd.engine.backlog import Backlog
from nsqd.engine.channel import Channel
from nsqd.engine.journal import WIDTH, Journal
from nsqd.engine.topic import Topic
from nsqd.log.ranges import Ranges, RangeSet, merged, without
from nsqd.log.retention import WantedPositions
from nsqd.log.tail_records import CheckpointPosition

# The counters of a channel as a checkpoint names them.
CHANNEL_COUNTERS: Final = {
    "messages": "message_count",
    "requeued": "requeue_count",
    "returned": "returned_count",
    "timed_out": "timeout_count",
    "dropped": "dropped_count",
    "expired": "expired_count",
    "dead": "dead_count",
}


@dataclass(slots=True)
class BacklogState:
    """The pending messages below ``end``: every message that is not ``finished``.

    *dues*, in time of the wall clock, and *tries* are facts as a `Journal` has them; of two on one message
    the later counts.
    """

    end: int = 0
    finished: RangeSet = field(default_factory=RangeSet)
    dues: "array[int]" = field(default_factory=lambda: array("Q"))
    tries: "array[int]" = field(default_factory=lambda: array("Q"))
    generation: int = 0
    # Finished elsewhere, at or behind ``end``.
    ahead: Ranges = field(default_factory=list)
    # See `Channel.absent`.
    absent: Ranges = field(default_factory=list)
    paused: bool = False
    committed: int = 0
    counters: dict[str, int] = field(default_factory=dict)

    def fill(self, backlog: Backlog, offset_ns: int = 0, now_ns: int = 0) -> None:
        """Make *backlog*, which is empty, have this pending; *offset_ns* is from the engine's clock to the
        wall clock. Messages due at *now_ns*, the engine's time, are not deferred.
        """
        backlog.finished = self.finished.copy()
        backlog.end = self.end
        # Finished, or put off by a later fact.
        settled = self.finished.copy()
        deferred: Ranges = []
        dues = self.dues
        for at in range(len(dues) - WIDTH, -1, -WIDTH):
            due_ns = max(1, dues[at] - offset_ns)
            # Those of a topic include what its channels have: see `Topic.deferred`.
            for start, end in settled.missing(dues[at + 1], min(dues[at + 2], self.end)):
                settled.add(start, end)
                if due_ns > now_ns:
                    backlog.deferred.add(start, end, due_ns)
                    deferred.append((start, end))
        tries = self.tries
        for at in range(0, len(tries), WIDTH):
            for start, end in self.finished.missing(tries[at + 1], tries[at + 2]):
                backlog.attempts.update(dict.fromkeys(range(start, end), tries[at]))
        backlog.enqueue(without(self.finished.missing(self.finished.floor, self.end), merged(deferred)))


@dataclass(slots=True)
class TopicState:
    """The contents of a checkpoint."""

    serial: int
    checkpoint_position: CheckpointPosition
    log_start: int
    low_water: int
    paused: bool
    awaiting_registration: bool
    counters: dict[str, int]
    backlog: BacklogState
    channels: dict[str, BacklogState]
    # What the log has or had.
    stored_ranges: Ranges
    # Channels that were deleted, and their generations.
    deleted_channels: dict[str, int] = field(default_factory=dict)
    # See `Topic.exclusive`.
    exclusive: list[tuple[int, int, str]] = field(default_factory=list)
    # See `Topic.tombstoned`.
    tombstoned: bool = False
    # See `Topic.finished_elsewhere`.
    finished_elsewhere: dict[tuple[str, int], Ranges] = field(default_factory=dict)


@dataclass(slots=True)
class Additions:
    """Additions to the facts of one owner: pages of finished messages, due times, attempts."""

    pages: set[int] = field(default_factory=set)
    journals: list[Journal] = field(default_factory=list)
    # The generation of the channel: when it is another one, the facts began again and earlier ones mean
    # nothing.
    generation: int = 0

    def add(self, later: "Additions") -> None:
        """Include what was added *later*."""
        if later.generation != self.generation:
            self.pages, self.journals, self.generation = set(), [], later.generation
        self.pages |= later.pages
        self.journals += later.journals


def owners(topic: Topic) -> dict[Backlog, Channel | None]:
    """All backlogs that a checkpoint covers, and the channel of each: the topic's own has none.

    Ephemeral channels are left out.
    """
    channels = {one.backlog: one for one in topic.channels.values() if not one.ephemeral}
    return {topic.backlog: None, **channels}


def take_change(backlog: Backlog, channel: Channel | None) -> Additions:
    """What was added since the last call; the cost is in proportion to that."""
    journal = backlog.journal or Journal()
    for start, end in backlog.in_flight.fresh():
        # After a crash no consumer can answer it, so it counts as tried now.
        if not backlog.attempts:
            journal.tried(start, end, 1)
            continue
        for seq in range(start, end):
            journal.tried(seq, seq + 1, backlog.attempts.get(seq, 1))
    return Additions(backlog.finished.take_changed(), [journal.take()], channel.generation if channel else 0)


def wanted_of(topic: Topic) -> WantedPositions:
    """The wanted messages of the topic now, see `Topic.wanted`; a copy for any thread."""
    backlogs = [(one.finished.copy(), one.end) for one in topic.all_backlogs()]
    return WantedPositions(backlogs, topic.retention_start)
