"""A small model of what clients were promised, with which the campaigns compare a restored node.

Every fact has positions in the history of the disk: when it was asked for, when it was answered, and when a
sync that began after the answer ended. After a crash behind ``k`` steps, a fact that was asked for later
cannot exist, one that was answered (or synced, if the node does not sync before it answers) must exist, and
any other may exist or not.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

NEVER: Final = 1 << 62


class After(Enum):
    """The kind of a crash."""

    KILL = "kill -9"
    # With --sync-every=1 publishes are answered after their sync.
    STRICT_CUT = "a power cut in strict mode"
    # Without it only synced facts are promised.
    CUT = "a power cut"


@dataclass(slots=True, eq=False)
class Fact:
    """Something that a client asked for."""

    asked: int
    answered: int = NEVER
    synced: int = NEVER
    # Answered without a sync in every mode.
    unforced: bool = False

    def may_be(self, k: int) -> bool:
        return self.asked < k

    def must_be(self, k: int, after: After) -> bool:
        if after is After.KILL or (after is After.STRICT_CUT and not self.unforced):
            return self.answered <= k
        return self.synced <= k


@dataclass(slots=True, eq=False)
class Message:
    """One message; *number* is its place among those of its topic."""

    body: bytes
    topic: "Topic"
    number: int
    stored: Fact
    due_ns: int = 0
    # By the wall clock.
    published_ns: int = 0
    # Position at which it was finished on a channel that did not owe it in this model; only after faults.
    strayed: int = NEVER


@dataclass(slots=True, eq=False)
class Debt:
    """A pending message of a channel, until it is finished or dropped."""

    message: Message
    since: int
    # When a client sent FIN, as position and as time.
    finished: int = NEVER
    finished_ns: int = NEVER
    # It was emptied, finished by an operator, or skipped by a channel that was set to a later position.
    dropped: Fact | None = None
    # It was finished, and then the channel was set to a position before it.
    given: Fact | None = None
    # (position from which it certainly holds, due time by the wall clock), the newest last.
    dues: list[tuple[int, int]] = field(default_factory=list)
    # Positions at which a consumer got it.
    deliveries: list[int] = field(default_factory=list)

    @property
    def is_dropped(self) -> bool:
        """Say whether the drop was promised."""
        return self.dropped is not None and self.dropped.answered < NEVER

    def is_pending(self, k: int) -> bool:
        """Say whether it is certainly pending: no request to remove it had begun."""
        return self.since < k and self.finished >= k and (self.dropped is None or self.dropped.asked >= k)


@dataclass(slots=True, eq=False)
class Named:
    """A topic or channel from its creation to its removal; one created again with the name is another."""

    name: str
    made: Fact
    removed: Fact | None = None
    # (fact, paused or not), in order
    pauses: list[tuple[Fact, bool]] = field(default_factory=list)

    def may_exist(self, k: int, after: After) -> bool:
        return self.made.may_be(k) and not (self.removed and self.removed.must_be(k, after))

    def must_exist(self, k: int, after: After) -> bool:
        return self.made.must_be(k, after) and not (self.removed and self.removed.may_be(k))

    @property
    def exists(self) -> bool:
        return self.removed is None

    @property
    def paused(self) -> bool:
        return bool(self.pauses) and self.pauses[-1][1]

    def pause_may_be(self, k: int, after: After) -> set[bool]:
        """Return the pause states in which it may be found."""
        possible = {False}
        for fact, value in self.pauses:
            if fact.must_be(k, after):
                possible = {value}
            elif fact.may_be(k):
                possible.add(value)
        return possible


@dataclass(slots=True, eq=False)
class Channel(Named):
    """A channel and its pending messages, by body."""

    debts: dict[bytes, Debt] = field(default_factory=dict)
    # Messages that were delivered as often as a policy allows, and since when; they may be dead letters.
    mortal: dict[bytes, Fact] = field(default_factory=dict)
    # Dead letters that were sent back, and since when; after a crash they may exist twice.
    returned: dict[bytes, Fact] = field(default_factory=dict)
    # Those that are also in the channel's backlog as the first message, because it was set back to it.
    doubled: set[bytes] = field(default_factory=set)
    # Messages that waited at the topic when the channel was set to a later position; it may get them or not.
    passed: dict[bytes, Fact] = field(default_factory=dict)

    def is_mortal(self, body: bytes, k: int) -> bool:
        """Say whether the message may be a dead letter after *k* steps."""
        since = self.mortal.get(body)
        return since is not None and since.may_be(k)


@dataclass(slots=True, eq=False)
class Topic(Named):
    """A topic, every channel it ever had, and messages that wait for a channel or the end of a pause."""

    channels: list[Channel] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    # Messages that wait or waited; handing a message to channels ends the topic's own debt.
    backlog: list[Debt] = field(default_factory=list)
    # Sequence -> name of the only channel that gets it.
    exclusive: dict[int, str] = field(default_factory=dict)

    @property
    def living(self) -> list[Channel]:
        return [channel for channel in self.channels if channel.exists]

    def channel(self, name: str) -> Channel | None:
        return next((channel for channel in self.living if channel.name == name), None)


class Model:
    """All topics that ever existed."""

    def __init__(self) -> None:
        self.topics: list[Topic] = []
        self.messages: dict[bytes, Message] = {}
        # Facts that are not answered or not synced yet.
        self._open: list[Fact] = []
        # Facts that a failed sync may have kept from the disk permanently.
        self._doubtful: list[Fact] = []
        # (position, end of the sequences in use by then)
        self.used: list[tuple[int, int]] = []

    def copy(self) -> "Model":
        """Return the same promises for another node."""
        return deepcopy(self)

    def topic(self, name: str) -> Topic | None:
        return next((topic for topic in reversed(self.topics) if topic.name == name and topic.exists), None)

    def living(self) -> list[Topic]:
        return [topic for topic in self.topics if topic.exists]

    def fact(self, position: int) -> Fact:
        fact = Fact(position)
        self._open.append(fact)
        return fact

    # --- events ---

    def make_topic(self, name: str, fact: Fact) -> Topic:
        """Return the topic of that name; create it if there is none."""
        topic = self.topic(name)
        if topic is None:
            topic = Topic(name, fact)
            self.topics.append(topic)
        return topic

    def make_channel(self, topic: Topic, name: str, fact: Fact) -> Channel:
        channel = topic.channel(name)
        if channel is None:
            channel = Channel(name, fact)
            # What waits at a paused topic comes to this channel anyway.
            waiting = {
                debt.message for debt in topic.backlog if debt.finished == NEVER and not debt.is_dropped
            }
            for former in topic.channels:
                if former.name == name and former.removed and former.removed.answered == NEVER:
                    # The removal may not happen; then the channel's messages come without being promised.
                    for debt in former.debts.values():
                        if debt.finished == NEVER and debt.message not in waiting:
                            self._owe(channel, debt.message, fact.asked, former.removed)
            topic.channels.append(channel)
            self.pump(topic, fact.asked)
        return channel

    def give(self, channel: Channel, body: bytes, position: int, *, stays: bool) -> None:
        """Give a new channel a message that was stored before, whatever its due time was.

        This includes emptied messages that still exist. A message that does not *stay* may come or not.
        """
        dropped = None if stays else Fact(position)
        channel.debts[body] = Debt(self.messages[body], position, dropped=dropped)

    def sought(
        self, channel: Channel, pending: set[bytes], stored: set[bytes], fact: Fact, *, sure: bool
    ) -> int:
        """Note that *pending* is the backlog of a set channel; return how many it had finished.

        Of those that it had finished only *stored* ones are promised, because the others may still be only in
        memory. Unless *sure*, messages that are not in it may come or not, because a read may have failed.
        """
        given = 0
        for body, debt in list(channel.debts.items()):
            open_ = debt.finished == NEVER and debt.dropped is None
            if open_ and body not in pending:
                debt.dropped = fact if sure else Fact(fact.asked)
            elif debt.finished < NEVER and body not in pending and not sure:
                channel.debts[body] = Debt(debt.message, fact.asked, given=fact, dropped=Fact(fact.asked))
        for body in pending:
            debt = channel.debts.get(body)
            if debt is None or debt.finished < NEVER or debt.dropped is not None:
                dropped = None if body in stored else Fact(fact.asked)
                channel.debts[body] = Debt(self.messages[body], fact.asked, given=fact, dropped=dropped)
                given += 1
        return given

    def publish(self, topic: Topic, body: bytes, fact: Fact, due_ns: int = 0) -> Message:
        message = Message(body, topic, len(topic.messages), fact, due_ns)
        topic.messages.append(message)
        self.messages[body] = message
        channels = [] if topic.paused else topic.living
        if channels:
            for channel in channels:
                self._owe(channel, message, fact.asked)
        else:
            topic.backlog.append(Debt(message, fact.asked))
        return message

    def refused(self, topic: Topic, body: bytes) -> None:
        """Note that a publish was refused, so the message never comes."""
        message = self.messages.pop(body)
        topic.messages.remove(message)
        topic.backlog = [debt for debt in topic.backlog if debt.message is not message]
        for channel in topic.channels:
            channel.debts.pop(body, None)

    def not_made(self, topic: Topic) -> None:
        """Forget a topic if everything that would have created it was refused."""
        if topic in self.topics and not (topic.messages or topic.channels):
            self.topics.remove(topic)

    def send_back(self, channel: Channel, body: bytes, fact: Fact) -> Debt:
        """Let the channel owe a dead letter again, even if it has finished the message otherwise."""
        channel.returned.setdefault(body, fact)
        debt = channel.debts.get(body)
        if debt is None or debt.finished < NEVER or debt.dropped is not None:
            debt = channel.debts[body] = Debt(self.messages[body], fact.asked, given=fact)
        return debt

    def pump(self, topic: Topic, position: int) -> None:
        """Hand the backlog to the channels, if the topic has any and is not paused."""
        if topic.living and not topic.paused:
            for debt in topic.backlog:
                if debt.finished == NEVER and not debt.is_dropped:
                    debt.finished = position
                    for channel in topic.living:
                        passed = channel.passed.get(debt.message.body)
                        self._owe(channel, debt.message, position, debt.dropped or passed)

    def pause(self, owner: Named, fact: Fact, *, paused: bool) -> None:
        owner.pauses.append((fact, paused))
        if isinstance(owner, Topic):
            self.pump(owner, fact.asked)

    def empty(self, owner: Topic | Channel, fact: Fact) -> None:
        debts = owner.backlog if isinstance(owner, Topic) else owner.debts.values()
        for debt in debts:
            if debt.dropped is None and debt.finished == NEVER:
                debt.dropped = fact

    def remove(self, owner: Named, fact: Fact) -> None:
        owner.removed = fact
        if isinstance(owner, Topic):
            for channel in owner.living:
                channel.removed = fact

    def synced(self, began: int, ended: int) -> None:
        """Note that a sync of everything has ended."""
        still = []
        for fact in self._open:
            if fact.answered <= began:
                fact.synced = min(fact.synced, ended)
            else:
                still.append(fact)
        self._open = still

    def sync_failed(self) -> None:
        """Note that calls failed since the last sync; a later sync proves nothing about facts open now."""
        self._doubtful += self._open
        self._open = []

    def stopped(self, position: int) -> None:
        """Note a clean stop, which has written everything again and made it durable."""
        self._open, self._doubtful = self._open + self._doubtful, []
        self.synced(position, position)

    def used_by(self, k: int) -> int:
        """Return the end of the sequences that were in use after *k* steps."""
        return max((end for position, end in self.used if position <= k), default=0)

    def incarnations(self, name: str) -> Iterator[Topic]:
        return (topic for topic in self.topics if topic.name == name)

    @staticmethod
    def _owe(channel: Channel, message: Message, position: int, dropped: Fact | None = None) -> None:
        debt = channel.debts[message.body] = Debt(message, position, dropped=dropped)
        if message.due_ns:
            debt.dues.append((message.stored.asked, message.due_ns))


@dataclass(slots=True)
class FoundChannel:
    """A channel of a restored node: bodies in order of delivery, and due times of deferred messages."""

    paused: bool
    bodies: list[bytes]
    dues: dict[bytes, int]
    seqs: set[int] = field(default_factory=set)


@dataclass(slots=True)
class FoundTopic:
    """A topic of a restored node. Without a channel its backlog was drained through a temporary one."""

    paused: bool
    channels: dict[str, FoundChannel]
    backlog: FoundChannel | None
    next_seq: int


@dataclass(slots=True)
class Found:
    """What a restored node has, with the sequences of the messages."""

    topics: dict[str, FoundTopic]
    seqs: dict[bytes, int]
    # Where the sequences of a new topic begin.
    first_seq: int
    lost: int = 0
    # Messages that came with two sequences.
    doubles: set[bytes] = field(default_factory=set)
    # Messages with an id that would be stored again, although they are within the window.
    forgotten: set[bytes] = field(default_factory=set)
