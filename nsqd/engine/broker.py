"""All topics of one nsqd, and the server's work after commands of clients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from nsqd.engine import handling, notes, seeking
from nsqd.engine.bounds import NOTHING_MORE, DiskLow, bound_of, drop_oldest
from nsqd.engine.channel import Channel, Consumer
from nsqd.engine.clock import Wall
from nsqd.engine.dedup import DedupBudget
from nsqd.engine.limits import Limits
from nsqd.engine.numbering import Sequences
from nsqd.engine.settings import NOTHING, SettingsOf, no_policies
from nsqd.engine.timers import Timers
from nsqd.engine.topic import Draining, Topic
from nsqd.log.ids import MessageIds
from nsqd.log.ranges import Ranges, within
from nsqd.log.tail import Storage

# How long a channel pauses that cannot read its messages.
_FIRST_PAUSE_NS: Final = 50_000_000
_LAST_PAUSE_NS: Final = 5_000_000_000
_MAX_STALLS: Final = 7

# Makes the log of a topic on disk, by the name of the topic.
StorageFactory = Callable[[str], Storage | None]


class Change(Enum):
    """What happened to a topic or channel."""

    TOPIC_CREATED = "topic created"
    TOPIC_DELETED = "topic deleted"
    CHANNEL_CREATED = "channel created"
    CHANNEL_DELETED = "channel deleted"


@dataclass(frozen=True, slots=True)
class Event:
    """One change, for the parts that update nsqlookupd, write metadata and manage files."""

    change: Change
    topic: Topic
    channel: Channel | None = None


class Broker:
    """Topics by name, and three lists of work for the server: topics to write, channels to serve, changes."""

    __slots__ = (
        "_room",
        "_storage_factory",
        "_timers",
        "awaits_channel_state",
        "decommissioning",
        "dirty",
        "disk_low",
        "drain_pending",
        "draining",
        "events",
        "ids",
        "limits",
        "sequences",
        "settings_of",
        "stalled",
        "topics",
        "under_way",
        "wake",
        "wall",
    )

    def __init__(self, ids: MessageIds, limits: Limits, make_store: StorageFactory) -> None:
        """*make_store* makes the log of a topic on disk, or None for a topic that lives in memory only."""
        self.ids = ids
        self.limits = limits
        self._storage_factory = make_store
        self.wall = Wall()
        self.sequences = Sequences()
        self.topics: dict[str, Topic] = {}
        # The room its topics share for ids of published messages.
        self._room = DedupBudget()
        # The policies for any topic or channel, whether it exists or not.
        self.settings_of: SettingsOf = no_policies
        # A drain is announced: publishes are accepted until load balancers have taken the node out.
        self.drain_pending = False
        # Nothing new is accepted, so that consumers can empty the node.
        self.draining = False
        # Nothing new is made: all logs of the node are transferred to others.
        self.decommissioning = False
        # Old messages are suspended until other nodes report which of them they have delivered.
        self.awaits_channel_state = False
        # Free disk space is below the watermark: nothing new is accepted until there is more.
        self.disk_low = False
        # Topics with staged messages.
        self.dirty: dict[Topic, None] = {}
        # How many operations have begun that stage in steps: long batches, dead letters that are sent back.
        self.under_way = 0
        # Channels whose messages could not be read at the last attempt.
        self.stalled: dict[Channel, None] = {}
        # Channels that may have both messages and a ready consumer.
        self.wake: dict[Channel, None] = {}
        self.events: list[Event] = []
        self._timers = Timers()

    @property
    def is_idle(self) -> bool:
        """Whether all of what was begun before a drain is stored."""
        return not (self.dirty or self.under_way)

    @property
    def leaving(self) -> bool:
        """Whether publishers are to go to other nodes: a drain is announced, or has begun."""
        return self.draining or self.drain_pending

    # --- topics and channels ---

    def topic(self, name: str, now_ns: int) -> Topic:
        """The topic of that name, made now if it does not exist."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.restore_topic(name, self.sequences.first(self.wall.time_at(now_ns)))
            topic.note(notes.CREATE)
            self.dirty[topic] = None
            self.events.append(Event(Change.TOPIC_CREATED, topic))
        return topic

    def topic_to_publish(self, name: str, now_ns: int) -> Topic:
        """Like :meth:`topic`, for a publisher. Raises Refused, and makes none, while nothing new is taken."""
        if self.draining:
            raise Draining
        if self.disk_low and name not in self.topics:
            raise DiskLow
        return self.topic(name, now_ns)

    def restore_topic(self, name: str, next_seq: int) -> Topic:
        """Add a topic that existed before, without an event."""
        store = self._storage_factory(name)
        limit = self.limits.mem_queue_size
        topic = self.topics[name] = Topic(
            name, self.ids, store, next_seq, limit, self.wall, self.settings_of, self._room
        )
        self._bind(topic)
        return topic

    def channel(
        self, topic: Topic, name: str, kept: Ranges | None = None, generation: int | None = None
    ) -> Channel:
        """The topic's channel of that name, made now if it does not exist. A new one must deliver the
        *kept* messages.

        *generation* is given for one that another nsqd has made.
        """
        channel = topic.channels.get(name)
        if channel is None:
            kept = topic.exclusive.without_others(name, kept or [])
            channel = topic.add_channel(name, kept, generation)
            self._bind(topic)
            pending = {"pending": kept} if kept else {}
            self._note(topic, notes.CREATE, name, generation=channel.generation, **pending)
            for copy in topic.promoted:
                if not copy.channels and not channel.ephemeral:
                    # A first channel also takes the backlog of the copy.
                    channel.share(copy.add_sibling(topic, name))
            self.events.append(Event(Change.CHANNEL_CREATED, topic, channel))
            self.serve(channel)
            # A first channel takes the topic's deferred messages over.
            for one in (channel, *channel.siblings):
                self.reschedule(one)
        return channel

    def delete_topic(self, name: str) -> list[Consumer]:
        """Remove a topic with its channels; returns the consumers whose connections are to be closed."""
        topic = self.topics.pop(name)
        topic.deleted = True
        self.dirty.pop(topic, None)
        topic.abandon()
        self.sequences.note_used(topic.sequence_end)
        if topic.published is not None:
            topic.published.forget()
        orphans: list[Consumer] = []
        for channel_name in list(topic.channels):
            orphans.extend(self._remove_channel(topic, channel_name))
        topic.empty()
        for copy in topic.promoted:
            copy.empty()
            # Nothing is written to its log, so the next checkpoint states the deletion.
            copy.tombstoned = copy.changed = True
        self.events.append(Event(Change.TOPIC_DELETED, topic))
        return orphans

    def delete_channel(self, topic: Topic, name: str) -> list[Consumer]:
        """Remove a channel; an ephemeral topic is removed with its last one."""
        orphans = self._remove_channel(topic, name)
        if topic.ephemeral and not topic.channels and not topic.deleted:
            orphans.extend(self.delete_topic(topic.name))
        return orphans

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer; its messages become pending. An ephemeral channel goes with its last one."""
        channel = consumer.channel
        if channel is None:
            return
        consumer.channel = None
        channel.unsubscribe(consumer)
        topic = self.topics.get(channel.topic_name)
        if topic is None or channel.deleted:
            return
        topic.changed = True
        if channel.ephemeral and not channel.consumers:
            self.delete_channel(topic, channel.name)
        else:
            self.serve(channel)

    def apply(self, settings_of: SettingsOf) -> None:
        """Follow changed policies: *settings_of* gives those for a topic or channel."""
        self.settings_of = settings_of
        for topic in self.topics.values():
            for one in (topic, *topic.promoted):
                one.apply(settings_of)
            self._bind(topic)
            self.uphold(topic)

    def set_disk_low(self, low: bool) -> None:
        """Refuse publishes from now on, or no longer."""
        self.disk_low = low
        for topic in self.topics.values():
            self._bind(topic)

    def _bind(self, topic: Topic) -> None:
        """Set whether the topic's bound, if there is one, is checked before each publish to it."""
        bound = NOTHING_MORE if self.disk_low else bound_of(topic)
        if bound is not None or topic.bounded:
            topic.bind(bound)

    def uphold(self, topic: Topic) -> None:
        """Make the topic and its channels follow their policies."""
        self._bind(topic)
        if topic.settings.drop_oldest:
            self._drop_oldest(topic)
        for channel in topic.channels.values():
            if channel.settings is not NOTHING:
                for one in (channel, *channel.siblings):
                    one.expiry_ns = one.expired_below = 0
                self.serve(channel)

    def _drop_oldest(self, topic: Topic) -> None:
        """Drop the oldest messages of the topic's own backlog that exceed the bound of its policy."""
        dropped = drop_oldest(topic.backlog, topic.settings, topic.log)
        topic.dropped_count += dropped
        topic.changed = topic.changed or bool(dropped)

    def max_defer_ns(self, topic_name: str) -> int:
        """How long a publisher may defer a message."""
        topic = self.topics.get(topic_name)
        settings = self.settings_of(topic_name, "") if topic is None else topic.settings
        return settings.max_defer_ns or self.limits.max_req_timeout_ns

    # --- flow ---

    def serve(self, channel: Channel) -> None:
        """Serve this channel at the end of the turn."""
        self.wake[channel] = None

    def stall(self, channel: Channel, now_ns: int) -> None:
        """The channel's messages cannot be read: try again after a pause, which grows."""
        self.stalled[channel] = None
        channel.retry_ns = now_ns + min(_LAST_PAUSE_NS, _FIRST_PAUSE_NS << channel.stalls)
        channel.stalls = min(channel.stalls + 1, _MAX_STALLS)
        self.schedule(channel, channel.retry_ns)

    def commit(self, topic: Topic) -> None:
        """The staged messages of a topic are stored."""
        topic.commit()
        if topic.settings.drop_oldest:
            self._drop_oldest(topic)
        for channel in topic.channels.values():
            self.wake[channel] = None
            due_ns = channel.backlog.deferred.next_due_ns()
            if due_ns is not None:
                self.schedule(channel, due_ns)

    def pause_topic(self, topic: Topic, *, paused: bool) -> None:
        topic.paused = paused
        self._note(topic, notes.PAUSE if paused else notes.UNPAUSE)
        self._resume(topic)
        for copy in topic.promoted:
            copy.paused = paused
            copy.changed = True
            self._resume(copy)

    def set_awaiting_registration(self, topic: Topic, *, awaiting_registration: bool) -> None:
        """Suspend delivery until the channels that the topic has elsewhere are made here."""
        topic.awaiting_registration = awaiting_registration
        self._note(topic, notes.HOLD if awaiting_registration else notes.FLOW)
        self._resume(topic)

    def empty_topic(self, topic: Topic) -> None:
        waiting = topic.backlog.lowest()
        if waiting is not None:
            topic.empty()
            self._note(topic, notes.EMPTY, sequence=waiting)
        for copy in topic.promoted:
            copy.empty()

    def pause_channel(self, topic: Topic, channel: Channel, *, paused: bool) -> None:
        for one in (channel, *channel.siblings):
            one.paused = paused
            one.changed = True
        self._note(topic, notes.PAUSE if paused else notes.UNPAUSE, channel.name)
        self.serve(channel)

    def empty_channel(self, topic: Topic, channel: Channel) -> None:
        channel.empty()
        self._note(topic, notes.EMPTY, channel.name)
        for sibling in channel.siblings:
            sibling.empty()

    def commit_channel(self, topic: Topic, channel: Channel, seq: int) -> None:
        """Acknowledge everything below *seq*."""
        channel.commit(seq)
        self._note(topic, notes.COMMIT, channel.name, sequence=seq)
        self.serve(channel)

    def seek_channel(self, topic: Topic, channel: Channel, position: int, kept: Ranges) -> None:
        """Let the channel deliver the *kept* messages from *position* on, and none before."""
        kept = topic.exclusive.without_others(channel.name, within(kept, position, topic.log.next_seq))
        seeking.seek(topic, channel, position, kept)
        channel.expiry_ns = 0
        generation = channel.generation
        self._note(topic, notes.SEEK, channel.name, sequence=position, pending=kept, generation=generation)
        self.serve(channel)
        self.reschedule(channel)

    def finish_messages(self, topic: Topic, channel: Channel, seqs: Sequence[int]) -> int:
        """Finish messages for a channel, in any state; returns how many were pending."""
        pending = handling.finish(channel, seqs)
        if pending:
            self._note(topic, notes.FINISH, channel.name, sequences=pending)
            self.serve(channel)
        return sum(end - start for start, end in pending)

    def requeue_messages(
        self, topic: Topic, channel: Channel, seqs: Sequence[int], delay_ns: int, now_ns: int
    ) -> int:
        """Requeue messages, now or after a delay, in any state; returns how many were pending."""
        pending = handling.defer(channel, seqs, now_ns + delay_ns, now_ns)
        if pending:
            channel.expiry_ns = 0
            due_ns = self.wall.time_at(now_ns + delay_ns)
            messages = [(seq, due_ns, channel.backlog.attempts.get(seq, 0)) for seq in pending]
            self._note(topic, notes.DEFER, channel.name, messages=messages)
            self.serve(channel)
            self.reschedule(channel)
        return len(pending)

    def defer(self, channel: Channel, seq: int, due_ns: int) -> None:
        """Schedule and note a message that came back with a delay."""
        self.schedule(channel, due_ns)
        topic = self.topics.get(channel.topic_name)
        if topic is not None and topic.channels.get(channel.name) is channel:
            topic.note_requeued(channel, seq, due_ns)
            self.dirty[topic] = None

    def _note(self, topic: Topic, what: str, channel_name: str = "", **more: Any) -> None:
        topic.changed = True
        topic.note(what, channel_name, **more)
        self.dirty[topic] = None

    def _resume(self, topic: Topic) -> None:
        if topic.pump():
            for channel in topic.channels.values():
                self.wake[channel] = None
                self.reschedule(channel)

    # --- time ---

    def schedule(self, channel: Channel, when_ns: int) -> None:
        """Let :meth:`expire` check the channel at that time."""
        self._timers.schedule(channel, when_ns)

    def reschedule(self, channel: Channel) -> None:
        due = channel.next_due_ns()
        if due is not None:
            self.schedule(channel, due)

    def next_due_ns(self) -> int | None:
        """When :meth:`expire` has work; None while nothing is timed."""
        return self._timers.next_ns()

    def expire(self, now_ns: int) -> None:
        """Time out and release the due messages of all channels."""
        # Each channel once: a channel with many due messages continues after the others.
        for channel in self._timers.take_due(now_ns):
            channel.expire(now_ns)
            self.wake[channel] = None
            topic = self.topics.get(channel.topic_name)
            if topic is not None:
                topic.changed = True
            self.reschedule(channel)

    def forget(self, channel: Channel) -> None:
        """Drop all work that is pending for the channel."""
        self.wake.pop(channel, None)
        self.stalled.pop(channel, None)
        self._timers.forget(channel)

    def _remove_channel(self, topic: Topic, name: str) -> list[Consumer]:
        channel = topic.remove_channel(name)
        if not topic.deleted:
            self._note(topic, notes.DELETE, name)
        for copy in topic.promoted:
            if name in copy.channels:
                self.forget(copy.remove_channel(name))
        self.forget(channel)
        orphans = list(channel.consumers)
        for consumer in orphans:
            consumer.channel = None
        self.events.append(Event(Change.CHANNEL_DELETED, topic, channel))
        return orphans
