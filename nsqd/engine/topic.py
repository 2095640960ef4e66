"""A topic: its log, its channels, and publishing in two steps.

A publish is first staged: numbered and encoded. The server writes what is staged and then commits it, which
puts it into the log and before the channels; or, when the write failed, abandons it. So no consumer sees a
message whose publisher is told that it was not stored. What else happens to the topic is staged as notes.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Final

from nsqd.engine import finishing, generations, notes
from nsqd.engine.alone import Alone
from nsqd.engine.channel import Channel
from nsqd.engine.clock import Wall
from nsqd.engine.dedup import Published, Room
from nsqd.engine.owed import UNLIMITED, Owed
from nsqd.engine.settings import SettingsOf, no_policies
from nsqd.engine.staging import Staging
from nsqd.log.batches import Batch
from nsqd.log.frames import FRAME_OVERHEAD
from nsqd.log.gaps import EVERYTHING
from nsqd.log.ids import MessageIds
from nsqd.log.ranges import Ranges, merged, within
from nsqd.log.tail import BlockSource, MessageLog

# A log in memory is looked through when it has doubled, and not for less than this.
_TRIM_BYTES: Final = 1 << 20
# So many deleted channels are remembered.
_MOST_GONE: Final = 256


class Refused(Exception):
    """Nothing is published just now; the text says why, as publishers are told."""


class Draining(Refused):
    """The node is being emptied."""

    def __init__(self) -> None:
        super().__init__("draining")


class Topic(Staging):
    """A named stream of messages."""

    __slots__ = (
        "_drawn",
        "_kept_bytes",
        "_kept_from",
        "_node_id",
        "_only",
        "_room",
        "_settings_of",
        "alone",
        "backlog",
        "carried",
        "changed",
        "channels",
        "deleted",
        "gone",
        "held",
        "log",
        "memory_limit",
        "message_bytes",
        "message_count",
        "paused",
        "settings",
        "source",
    )

    def __init__(
        self,
        name: str,
        ids: MessageIds,
        source: BlockSource,
        next_seq: int,
        memory_limit: int,
        wall: Wall | None = None,
        settings_of: SettingsOf = no_policies,
        room: Room | None = None,
    ) -> None:
        """*source* is the topic's own: it has what is stored of this topic and nothing else.

        *room* is the node's for ids of messages.
        """
        super().__init__(name, ids, next_seq, wall)
        self._settings_of = settings_of
        # What policies say of the topic; each channel has its own.
        self.settings = settings_of(name, "")
        self.source = source
        self.memory_limit = memory_limit
        self.log = MessageLog(source, next_seq, memory_limit, keep_all=self.ephemeral)
        self.channels: dict[str, Channel] = {}
        # The logs of other nsqd that are served here, each as a topic of its own: see `carried`.
        self.carried: list[Topic] = []
        # What no channel owes yet: published before the first channel, or while paused.
        self.backlog = Owed(memory_limit if self.ephemeral else UNLIMITED)
        self.paused = False
        # A new topic waits until the channels it has elsewhere in the cluster are known.
        self.held = False
        self.deleted = False
        self.message_count = 0
        self.message_bytes = 0
        # Something happened since the last checkpoint.
        self.changed = True
        # Messages that one channel is owed and no other, in order: first, end, the channel's name.
        self._only: list[tuple[int, int, str]] = []
        # The same of what is stored, for who goes back.
        self.alone = Alone()
        # How many generations of channels were drawn in this life.
        self._drawn = 0
        self._node_id = ids.node_id
        # Channels that were deleted, by name the generation of the last one: they are not made again because
        # another nsqd has not heard of that.
        self.gone: dict[str, int] = {}
        # Size of a log in memory after the last look at what of it is owed.
        self._kept_bytes = 0
        self._room = room or Room()
        self._watch_ids()
        # From here on a policy keeps what is finished; all, until somebody has looked how much that is.
        self._kept_from = 0

    def __repr__(self) -> str:
        return f"<Topic {self.name} next {self.log.next_seq} channels {list(self.channels)}>"

    def stage_for(self, channel_name: str, batch: Batch, now_ns: int) -> None:
        """Stage messages that this channel is owed and no other. Raises Refused; then none of them is staged.

        While the topic is paused there is no telling channels apart: all of them get the messages then.
        """
        self._seal()
        before = len(self._staged)
        self.stage_batch(batch, now_ns, moved=True)
        self._seal()
        first, end = self._staged[before].first, self._staged[-1].next
        self.keep_for(channel_name, first, end)
        if not self.ephemeral:
            # Also for a channel that is in memory only: after a crash the others still do not owe them.
            self._notes.append(notes.encode(notes.ONLY, channel_name, first=first, end=end))

    def note_put_off(self, channel: Channel, seq: int, due_ns: int) -> None:
        """Stage that a message came back with a delay."""
        if not (self.ephemeral or channel.ephemeral):
            came = (seq, self.wall.at(due_ns), channel.attempts.get(seq, 1))
            self._put_off.setdefault(channel.name, []).append(came)

    def keep_for(self, channel_name: str, first: int, end: int) -> None:
        """Messages ``first <= seq < end``, which are stored next, are owed by this channel and no other."""
        self._only.append((first, end, channel_name))
        self.alone.add(first, end, channel_name)

    # --- publishing, step two ---

    def commit(self) -> None:
        """What was staged is stored: channels owe it from now on."""
        self._notes = []
        staged, self._staged = self._staged, []
        flowing = self.flowing
        published = alone = 0
        for block in staged:
            self.log.append(block)
            first, end = block.first, block.next
            published += end - first
            self.message_bytes += len(block.data)
            due_ns = self.wall.engine_ns(block.due_ns) if block.due_ns else 0
            if self._only:
                alone += self._owe_apart(first, end, due_ns)
                continue
            for owed in self.channels.values() if flowing else (self.backlog,):
                owed.extend(first, end, due_ns)
        self.message_count += published
        self.message_bytes -= FRAME_OVERHEAD * published + self._extension_bytes
        self._extension_bytes = 0
        if self.published is not None:
            self.published.stored()
        if flowing:
            for channel in self.channels.values():
                channel.message_count += published - alone
        self.changed = True
        if self.log.keep_all and self.log.resident_bytes > 2 * max(self._kept_bytes, _TRIM_BYTES):
            self.trim()

    def owe(self, first: int, end: int, due_ns: int = 0) -> None:
        """Messages that were stored in another life are owed by whom they were given then."""
        if self._only:
            self._owe_apart(first, end, due_ns)
            return
        for owed in self.owing():
            owed.extend(first, end, due_ns)

    def _owe_apart(self, first: int, end: int, due_ns: int) -> int:
        """Have messages owed of which one channel alone may be owed some; returns how many those are."""
        owing = self.owing()
        alone = 0
        while first < end:
            start, stop, name = self._only[0] if self._only else (end, end, "")
            if stop <= first and self._only:
                del self._only[0]
                continue
            if first < start:
                stop = min(start, end)
                for owed in owing:
                    owed.extend(first, stop, due_ns)
            elif self.flowing:
                stop = min(stop, end)
                owner = self.channels.get(name)
                alone += stop - first
                if owner is not None:
                    owner.extend(first, stop, due_ns)
                    owner.message_count += stop - first
            else:
                stop = min(stop, end)
                for owed in owing:
                    owed.extend(first, stop, due_ns)
            first = stop
        return alone

    def abandon(self) -> None:
        """The messages that were staged could not be stored; their numbers are not used again.

        The notes stay: what they say has happened, and they are written with whatever is written next.
        """
        self._seal()
        self._staged = []
        self._only.clear()
        self.alone.drop_from(self.log.next_seq)
        self._extension_bytes = 0
        self.log.had.go_on_at(self.log.next_seq, self._encoder.next_seq)
        if self.published is not None:
            self.published.abandoned()

    # --- channels and flow ---

    @property
    def flowing(self) -> bool:
        """Whether messages move on to channels."""
        return bool(self.channels) and not self.paused and not self.held

    def owing(self) -> list[Owed]:
        """Who owes what is published now."""
        return list(self.channels.values()) if self.flowing else [self.backlog]

    def add_channel(self, name: str, kept: Ranges | None = None, generation: int | None = None) -> Channel:
        """Make a channel; it is owed what is published from now on, the first one also what waits.

        *kept* are ranges of stored messages that it is owed besides, in their order. One that was made
        before, here or by another nsqd, has its *generation*.
        """
        channel = self.channels[name] = Channel(self.name, name, self.log, self.memory_limit, self.wall)
        channel.settings = self._settings_of(self.name, name)
        channel.generation = self.draw_generation(name) if generation is None else generation
        # What waits here comes by itself.
        waiting = self.backlog.lowest()
        given = within(kept or [], 0, EVERYTHING if waiting is None else waiting)
        channel.begin(given[0][0] if given else self.log.next_seq if waiting is None else waiting)
        for start, end in given:
            channel.extend(start, end)
            channel.message_count += end - start
        self.changed = True
        self.pump()
        return channel

    def draw_generation(self, channel_name: str) -> int:
        """What is to tell a channel that is made, or begins again, from all others of its name."""
        self._drawn += 1
        return generations.draw(self._node_id, self.name, channel_name, self.log.next_seq, self._drawn)

    def apply(self, settings_of: SettingsOf) -> None:
        """Hold from now on what policies say."""
        self._settings_of = settings_of
        self.settings = settings_of(self.name, "")
        self._watch_ids()
        for channel in self.channels.values():
            channel.settings = settings_of(self.name, channel.name)

    def _watch_ids(self) -> None:
        """Remember what is published, if a policy says so; from then on."""
        window_ns = self.settings.dedup_window_ns
        if self.published is not None and not window_ns:
            self.published.forget()
            self.published = None
        elif self.published is not None:
            self.published.window_ns = window_ns
        elif window_ns:
            self.published = Published(window_ns, self._room)

    def remove_channel(self, name: str) -> Channel:
        """Take a channel off the topic; the caller closes its consumers."""
        channel = self.channels.pop(name)
        channel.deleted = True
        channel.empty()
        if not channel.ephemeral:
            self.gone.pop(name, None)
            self.gone[name] = channel.generation
            if len(self.gone) > _MOST_GONE:
                del self.gone[next(iter(self.gone))]
        self.changed = True
        return channel

    def pump(self) -> bool:
        """Hand the backlog to the channels if messages flow; True when there was any."""
        backlog = self.backlog
        if not self.flowing or not (backlog.depth or backlog.deferred):
            return False
        for channel in self.channels.values():
            channel.take_over(backlog)
            channel.expiry_ns = 0
            if channel.committed:
                # It was acknowledged while it waited here; a reader of the log does not wait for the flow.
                channel.drop_below(channel.committed)
            channel.message_count += backlog.depth + len(backlog.deferred)
            if channel.ahead:
                ahead, channel.ahead = channel.ahead, []
                finishing.finish(channel, ahead)
        backlog.clear()
        self.changed = True
        return True

    def empty(self) -> None:
        """Drop what waits at the topic; its channels keep theirs."""
        self.backlog.clear()
        self.changed = True

    def acknowledged(self, channel: Channel) -> int:
        """Everything below this sequence is acknowledged, also of what waits here for the channel."""
        waiting = self.backlog.lowest()
        if waiting is None:
            return channel.acknowledged
        return min(channel.acknowledged, max(waiting, channel.committed))

    def low_water(self) -> int:
        """Nobody owes anything below this sequence."""
        lowest = [owed.lowest() for owed in (self.backlog, *self.channels.values())]
        return min((seq for seq in lowest if seq is not None), default=self.log.next_seq)

    @property
    def keeps_from(self) -> int:
        """From this sequence on all is kept by policy, finished or not."""
        return self._kept_from if self.settings.retains and not self.ephemeral else EVERYTHING

    def keep_from(self, seq: int) -> bool:
        """A policy keeps what is finished from *seq* on; True when that is more or less than before."""
        moved = seq != self._kept_from
        self._kept_from = seq
        return moved

    def unwanted_below(self) -> int:
        """Nobody wants anything below this sequence: it is neither owed nor kept."""
        return min(self.low_water(), self.keeps_from)

    def wanted(self, start: int, end: int) -> Ranges:
        """What of ``start <= seq < end`` anybody owes or a policy keeps, sorted and merged."""
        owing: Iterable[Owed] = (self.backlog, *self.channels.values())
        owed = chain.from_iterable(one.owed(start, end) for one in owing)
        return merged([*owed, (max(start, self.keeps_from), end)])

    def trim(self) -> bool:
        """Forget some of what is in memory and nobody owes; False when nothing of it is left."""
        if not self.log.keep_all:
            return self.log.release(self.low_water())
        self.log.keep_only(self.wanted(0, self.log.next_seq))
        self._kept_bytes = self.log.resident_bytes
        return False

    def backend_depth(self, owed: Owed) -> int:
        """How much of what waits is beyond the memory limit."""
        return 0 if self.ephemeral else owed.count_below(self.log.next_seq - self.memory_limit)

    def skip_to(self, seq: int) -> None:
        """Continue the sequence at *seq* or later; called while nothing is staged."""
        if seq > self._encoder.next_seq:
            self.log.had.go_on_at(self.log.next_seq, seq)
            self._encoder.skip_to(seq)
            self.log.next_seq = seq

    def take_changed(self) -> bool:
        """Whether what is owed changed since the last call."""
        changed = self.changed
        self.changed = False
        for channel in self.channels.values():
            changed = changed or channel.changed
            channel.changed = False
        return changed
