"""A topic: its log, its channels, and publishing in two steps.

A publish is first staged: numbered and encoded. The server writes staged messages and then commits them:
that adds them to the log and to the channels. When the write failed, the server abandons them instead. So no
consumer sees a message whose publisher gets an error. Other events of the topic are staged as notes.
"""

from itertools import chain
from typing import Final

from nsqd.engine import notes
from nsqd.engine.backlog import UNLIMITED, Backlog
from nsqd.engine.channel import Channel
from nsqd.engine.clock import Wall
from nsqd.engine.dedup import DedupBudget, DedupWindow
from nsqd.engine.deferred import Deferred
from nsqd.engine.exclusive_ranges import ExclusiveRanges
from nsqd.engine.numbering import draw_generation
from nsqd.engine.settings import SettingsOf, no_policies
from nsqd.engine.staging import Staging
from nsqd.log.encoder import Batch
from nsqd.log.frames import FRAME_OVERHEAD
from nsqd.log.gaps import EVERYTHING
from nsqd.log.ids import MessageIds
from nsqd.log.ranges import Ranges, merged, within, without
from nsqd.log.tail import MessageLog, Storage

# A log in memory is trimmed at twice its size after the last trimming, but not below twice this size.
_TRIM_BYTES: Final = 1 << 20
# How many deleted channels are remembered.
_MAX_DELETED_CHANNELS: Final = 256


class Refused(Exception):
    """Nothing can be published now; the text is the reason for publishers."""


class Draining(Refused):
    """The node is being emptied."""

    def __init__(self) -> None:
        super().__init__("draining")


class Topic(Staging):
    """A named stream of messages.

    The topic of a promoted copy, see `promoted`, is one with an `origin`. It has no publishers.
    """

    __slots__ = (
        "_generations",
        "_retention_start",
        "_room",
        "_settings_of",
        "_skipped",
        "_trimmed_bytes",
        "awaiting_registration",
        "backlog",
        "changed",
        "channels",
        "deferred",
        "deleted",
        "deleted_channels",
        "dropped_count",
        "exclusive",
        "finished_elsewhere",
        "ids",
        "log",
        "memory_limit",
        "message_bytes",
        "message_count",
        "paused",
        "promoted",
        "settings",
        "store",
        "suspended",
        "tombstoned",
    )

    def __init__(
        self,
        name: str,
        ids: MessageIds,
        store: Storage | None,
        next_seq: int,
        memory_limit: int,
        wall: Wall | None = None,
        settings_of: SettingsOf = no_policies,
        room: DedupBudget | None = None,
        origin: str = "",
    ) -> None:
        """*store* is the topic's log on disk; None for a topic that lives in memory only.

        *room* is the node's room for ids of published messages. See `Staging` for *origin*.
        """
        super().__init__(name, ids, next_seq, wall, origin)
        self.ids = ids
        self._settings_of = settings_of
        # Policies for the topic; each channel has its own.
        self.settings = settings_of(name, "")
        self.store = store
        self.memory_limit = memory_limit
        self.log = MessageLog(None if store is None else store.segments, next_seq, memory_limit)
        self.channels: dict[str, Channel] = {}
        # Promoted copies of other logs, each as a topic of its own: see `promoted`.
        self.promoted: list[Topic] = []
        # Messages that are suspended on each channel that is made, because another nsqd delivers them, or may
        # have delivered them. Not on ephemeral ones: no other nsqd has those.
        self.suspended: Ranges = []
        # Of a promoted copy: whether the topic was deleted here, so that no message that it had then is
        # pending; and the messages that other copies have finished and this one never had, by channel and
        # generation.
        self.tombstoned = False
        self.finished_elsewhere: dict[tuple[str, int], Ranges] = {}
        # Messages that no channel must deliver yet: published before the first channel, or while paused.
        self.backlog = Backlog(memory_limit if self.ephemeral else UNLIMITED)
        # What was published with a delay and is not due yet, whatever the channels have done with it.
        self.deferred = Deferred()
        self.paused = False
        # A new topic suspends its messages until its channels elsewhere in the cluster are known.
        self.awaiting_registration = False
        self.deleted = False
        self.message_count = 0
        self.message_bytes = 0
        # Messages of the backlog that a policy's bound dropped.
        self.dropped_count = 0
        # Something happened since the last checkpoint.
        self.changed = True
        # Messages that are addressed to one channel, also staged ones.
        self.exclusive = ExclusiveRanges()
        # Numbers that were given to no message: from the end before the last start to the first one after it.
        self._skipped = (0, 0)
        # How many generations of channels were drawn since the start.
        self._generations = 0
        # Deleted channels: by name the generation of the last one. They are not made again because another
        # nsqd has not heard of the deletion.
        self.deleted_channels: dict[str, int] = {}
        # The size of a log in memory after the last trimming.
        self._trimmed_bytes = 0
        self._room = room or DedupBudget()
        self._watch_ids()
        # A policy retains finished messages from here on; 0, for all, until their size is known.
        self._retention_start = 0

    def __repr__(self) -> str:
        return f"<Topic {self.name} {self.origin} next {self.log.next_seq} channels {list(self.channels)}>"

    def stage_for(self, channel_name: str, batch: Batch, now_ns: int) -> None:
        """Stage messages for this channel and no other. Raises Refused; then none of them is staged.

        While the topic is paused, all its channels get the messages.
        """
        self._seal()
        before = len(self._staged)
        self.stage_batch(batch, now_ns, moved=True)
        self._seal()
        first, end = self._staged[before].first, self._staged[-1].next
        if first == self._skipped[1]:
            # Others find nothing up to the end of these, wherever they have read to before the start.
            first = self._skipped[0]
        self.exclusive.add(first, end, channel_name)
        if not self.ephemeral:
            # Also for a channel that is in memory only: after a crash the other channels still do not deliver
            # them.
            self._notes.append(notes.encode(notes.ONLY, channel_name, first=first, end=end))

    def admits(self, count: int, size: int) -> bool:
        """Whether *count* messages of *size* bytes are within the bounds now."""
        try:
            if self._bound is not None:
                self._bound.admit(count, size)
        except Refused:
            return False
        return True

    def note_requeued(self, channel: Channel, seq: int, due_ns: int) -> None:
        """Stage a note that a message came back with a delay."""
        if not (self.ephemeral or channel.ephemeral):
            came = (seq, self.wall.time_at(due_ns), channel.backlog.attempts.get(seq, 1))
            self._requeued.setdefault(channel.name, []).append(came)

    # --- publishing, step two ---

    def commit(self) -> None:
        """The staged messages are stored: channels deliver them from now on."""
        self._notes = []
        staged, self._staged = self._staged, []
        published = 0
        for block in staged:
            self.log.append(block)
            first, end = block.first, block.next
            published += end - first
            self.message_bytes += len(block.data)
            due_ns = self.wall.engine_ns(block.due_ns) if block.due_ns else 0
            self.add_stored(first, end, due_ns)
        self.message_count += published
        self.message_bytes -= FRAME_OVERHEAD * published + self._extension_bytes
        self._extension_bytes = 0
        if self.published is not None:
            self.published.stored()
        self.changed = True
        if self.log.source is None and self.log.resident_bytes > 2 * max(self._trimmed_bytes, _TRIM_BYTES):
            self.trim()

    def add_stored(self, first: int, end: int, due_ns: int = 0) -> None:
        """Add messages ``first <= seq < end``, which are stored, to the backlogs.

        Those that are addressed to one channel are finished for every other one. While messages do not flow,
        all channels get them.
        """
        if due_ns:
            self._note_deferred(first, end, due_ns)
        addressed = self.exclusive.end > first
        if not self.flowing:
            if addressed:
                self.exclusive.drop(first, end)
            self.backlog.extend(first, end, due_ns)
            return
        for channel in self.channels.values():
            given = [(first, end)]
            if addressed:
                given = self.exclusive.without_others(channel.name, given)
            for start, stop in given:
                channel.backlog.extend(start, stop, due_ns)
                channel.message_count += stop - start
            if addressed:
                channel.backlog.pass_over(end)

    def _note_deferred(self, first: int, end: int, due_ns: int) -> None:
        """Remember the due time, here and with the next checkpoint, for channels that are set to a place."""
        self.deferred.add(first, end, due_ns)
        if self.flowing and self.backlog.journal is not None:
            # Otherwise the backlog has it, and notes it itself.
            self.backlog.journal.defer(first, end, due_ns)

    def deferred_in(self, ranges: Ranges) -> list[tuple[int, int, int]]:
        """Runs (due time, start, end) of `deferred` in sorted *ranges*."""
        return [
            (due_ns, low, high)
            for due_ns, start, end in self.deferred.runs()
            for low, high in within(ranges, start, end)
        ]

    def forget_due(self, now_ns: int) -> None:
        """Forget the due times that have come."""
        while self.deferred.count and self.deferred.take_due(now_ns):
            pass

    def abandon(self) -> None:
        """The messages that were staged could not be stored; their numbers are not used again.

        They leave no hole in the stored ranges (see `nsqd.log.tail`). With one for each failure, the
        log would soon forget that it has its oldest messages.

        The notes stay: their events have happened, and the next write includes them. Those of delays are left
        to the next checkpoint: no client has a reply that they are stored. As long as the disk is full each
        turn adds one, until a message that would fit does not fit behind them.
        """
        self._abandon_messages()
        self._requeued.clear()
        self._notes = [note for note in self._notes if not notes.defers(note)]
        self.changed = True

    def refuse(self) -> None:
        """The staged messages are refused; their numbers are not used again.

        All notes of other clients are written. A note on a refused message is not.
        """
        self._abandon_messages()
        self._notes = [note for note in self._notes if not notes.is_exclusive(note)]

    def _abandon_messages(self) -> None:
        self._seal()
        self._staged = []
        self.exclusive.drop_from(self.log.next_seq)
        self._extension_bytes = 0
        if self.published is not None:
            self.published.abandoned()

    # --- channels and flow ---

    @property
    def flowing(self) -> bool:
        """Whether messages move on to the channels."""
        return bool(self.channels) and not self.paused and not self.awaiting_registration

    def backlogs(self) -> list[Backlog]:
        """The backlogs that deliver messages published now: those of the channels, or the topic's own."""
        return [one.backlog for one in self.channels.values()] if self.flowing else [self.backlog]

    def all_backlogs(self) -> list[Backlog]:
        """The topic's own backlog and those of all channels."""
        return [self.backlog, *(channel.backlog for channel in self.channels.values())]

    def add_channel(self, name: str, kept: Ranges | None = None, generation: int | None = None) -> Channel:
        """Make a channel; it must deliver new messages, and the first channel also the topic's backlog.

        *kept* are ranges of stored messages that it also must deliver, in their order. *generation* is given
        for a channel that was made before, here or by another nsqd.
        """
        channel = Channel(self.name, name, self.log, self.memory_limit, self.wall)
        channel.settings = self._settings_of(self.name, name)
        channel.generation = self.draw_generation(name) if generation is None else generation
        self.channels[name] = channel
        if self.origin:
            # What a copy lacks was finished elsewhere, perhaps after the channel was made there.
            channel.ids = self.ids
        elif kept:
            channel.absent = without([(kept[0][0], self.log.next_seq)], kept)
        # Messages that wait here are handed over below.
        waiting = self.backlog.lowest()
        given = within(kept or [], 0, EVERYTHING if waiting is None else waiting)
        channel.backlog.reset(given[0][0] if given else self.log.next_seq if waiting is None else waiting)
        for start, end in given:
            channel.backlog.extend(start, end)
            channel.message_count += end - start
        deferred = self.deferred_in(given)
        channel.backlog.discard(merged([(start, end) for _, start, end in deferred]))
        for due_ns, start, end in deferred:
            channel.backlog.defer(start, end, due_ns)
        self.changed = True
        self.pump()
        if self.suspended and not channel.ephemeral:
            channel.backlog.suspend(self.suspended)
        return channel

    def add_sibling(self, own: "Topic", name: str) -> Channel:
        """Make the channel of this promoted copy that belongs to that channel of the *own* topic."""
        # A channel that is made again needs a generation of a topic that no other node has.
        again = name in self.deleted_channels
        return self.add_channel(name, generation=own.draw_generation(name) if again else None)

    def draw_generation(self, channel_name: str) -> int:
        """A generation that tells a channel that is made, or begins again, from all others of its name.

        A channel that is new to the log has the same one in each copy: the owners of two copies may make it
        at the same time, or one may not know that it exists.
        """
        node_id, end = self.ids.node_id, self.log.next_seq
        if channel_name not in self.channels and channel_name not in self.deleted_channels:
            return draw_generation(node_id, self.name, channel_name, 0, 0)
        self._generations += 1
        return draw_generation(node_id, self.name, channel_name, end, self._generations)

    def apply(self, settings_of: SettingsOf) -> None:
        """Follow these policies from now on."""
        self._settings_of = settings_of
        self.settings = settings_of(self.name, "")
        self._watch_ids()
        for channel in self.channels.values():
            channel.settings = settings_of(self.name, channel.name)

    def _watch_ids(self) -> None:
        """Remember the ids of messages published from now on, if a policy says so."""
        window_ns = 0 if self.origin else self.settings.dedup_window_ns
        if self.published is not None and not window_ns:
            self.published.forget()
            self.published = None
        elif self.published is not None:
            self.published.window_ns = window_ns
        elif window_ns:
            self.published = DedupWindow(window_ns, self._room)

    def remove_channel(self, name: str) -> Channel:
        """Take a channel off the topic; the caller closes its consumers."""
        channel = self.channels.pop(name)
        channel.deleted = True
        channel.empty()
        if not channel.ephemeral:
            self.deleted_channels.pop(name, None)
            self.deleted_channels[name] = channel.generation
            if len(self.deleted_channels) > _MAX_DELETED_CHANNELS:
                del self.deleted_channels[next(iter(self.deleted_channels))]
        self.changed = True
        return channel

    def pump(self) -> bool:
        """Hand the backlog to the channels if messages flow; True when there was any."""
        backlog = self.backlog
        if not self.flowing or not backlog.count():
            return False
        for channel in self.channels.values():
            channel.backlog.merge(backlog)
            channel.expiry_ns = 0
            channel.message_count += backlog.count()
            # A reader of the log, or another nsqd, may have finished messages while they waited here.
            channel.remove([(0, channel.committed), *channel.ahead])
            channel.ahead = []
        backlog.remove([(0, backlog.end)])
        self.changed = True
        return True

    def empty(self, first: int = 0) -> None:
        """Drop the topic's own backlog from sequence *first* on; its channels keep their pending messages."""
        self.backlog.remove([(first, self.backlog.end)])
        self.changed = True

    def acknowledged(self, channel: Channel) -> int:
        """The sequence below which all is acknowledged for the channel, including what waits for it here."""
        waiting = self.backlog.lowest()
        if waiting is None:
            return channel.acknowledged
        return min(channel.acknowledged, max(waiting, channel.committed))

    def low_water(self) -> int:
        """The sequence below which no channel must deliver anything."""
        lowest = [backlog.lowest() for backlog in self.all_backlogs()]
        return min((seq for seq in lowest if seq is not None), default=self.log.next_seq)

    @property
    def retention_start(self) -> int:
        """The sequence from which on a policy retains everything, finished or not."""
        return self._retention_start if self.settings.retains and not self.ephemeral else EVERYTHING

    def raise_retention_start(self, seq: int) -> bool:
        """Retain finished messages from *seq* on, by policy; True when that is more or less than before."""
        moved = seq != self._retention_start
        self._retention_start = seq
        return moved

    def unwanted_below(self) -> int:
        """The sequence below which no message is wanted: none is pending or retained."""
        return min(self.low_water(), self.retention_start)

    def wanted(self, start: int, end: int) -> Ranges:
        """The messages of ``start <= seq < end`` that a channel must deliver or a policy keeps, sorted and
        merged.
        """
        unfinished = chain.from_iterable(one.unfinished(start, end) for one in self.all_backlogs())
        return merged([*unfinished, (max(start, self.retention_start), end)])

    def trim(self) -> bool:
        """Drop some of the messages in memory that no channel must deliver; False when none are left."""
        if self.log.source is not None:
            return self.log.release(self.low_water())
        self.log.retain(self.wanted(0, self.log.next_seq))
        self._trimmed_bytes = self.log.resident_bytes
        return False

    def backend_depth(self, backlog: Backlog) -> int:
        """How many waiting messages are beyond the memory limit."""
        return 0 if self.ephemeral else backlog.pending.count_below(self.log.next_seq - self.memory_limit)

    def skip_to(self, seq: int) -> None:
        """Continue the sequence at *seq* or later; called while nothing is staged."""
        if seq > self._encoder.next_seq:
            self.log.stored_ranges.resume_at(self.log.next_seq, seq)
            self._encoder.skip_to(seq)
            self._skipped = (self.log.next_seq, seq)
            self.log.next_seq = seq

    @property
    def has_changed(self) -> bool:
        """Whether the pending messages changed since the last call of `take_changed`."""
        return self.changed or any(channel.changed for channel in self.channels.values())

    def take_changed(self) -> bool:
        """Whether the pending messages changed since the last call."""
        changed = self.changed
        self.changed = False
        for channel in self.channels.values():
            changed = changed or channel.changed
            channel.changed = False
        return changed
