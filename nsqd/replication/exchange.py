"""The statuses of one log that this node and one peer exchange over one connection. No socket, no clock.

A status is sent when something in it has changed, so an idle log costs nothing. The connection shows that the
peer is up.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from nsqd.engine.topic import Topic
from nsqd.replication.channel_states import nothing_pending, states_of
from nsqd.replication.claims import Pending
from nsqd.replication.frames import ChannelState, CopyKind, Status
from nsqd.replication.link import PeerLink
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.sender import Sender

# Copies whose channel state their node does not know.
_WITHOUT_STATE: Final = (CopyKind.NONE, CopyKind.REPLICA, CopyKind.STREAMED)


class Checkpointing:
    """A received status whose channel state is not yet in checkpoints here and at this owner's replicas."""

    __slots__ = ("positions", "serial", "topics")

    def __init__(self, serial: int, topics: set[Topic]) -> None:
        self.serial = serial
        self.topics = topics
        # Bytes of streams that must be durable at replicas; None until all topics are checkpointed here.
        self.positions: list[tuple[Sender, int]] | None = None if topics else []

    def checkpointed(self, topic: Topic, senders: list[Sender]) -> None:
        """A checkpoint of the topic was written and sent to the replicas."""
        if topic not in self.topics or topic.changed:
            return
        self.topics.discard(topic)
        if not self.topics:
            self.positions = [(sender, sender.sent) for sender in senders]
            for sender in senders:
                sender.request_sync()

    @property
    def is_done(self) -> bool:
        live = {topic for topic in self.topics if not topic.deleted}
        if live:
            return False
        return all(sender.synced >= position or sender.closed for sender, position in self.positions or ())


class Exchange:
    """See the module."""

    def __init__(self, link: PeerLink, now_ns: int) -> None:
        self.link = link
        self.opened_ns = now_ns
        # The peer has checkpointed the channel state of this node's statuses up to this serial.
        self.acknowledged = 0
        # The peer has answered since this node's last query.
        self.answered = False
        # The next status asks for the full state of the peer's copies.
        self.asks_full_state = True
        self._serial = 0
        # Copies whose state is to be sent in full, and topics to be sent of the others.
        self._full: set[int] = set()
        self._changed: dict[int, set[str]] = {}
        # The serial of the last status with channel state of a copy.
        self._state_serials: dict[int, int] = {}
        self._sent: list[Status] = []
        self._sends_states = False
        # The state of every copy is to be sent in full.
        self._sends_all = False
        self._must_answer = True
        self._states: dict[int, list[ChannelState]] = {}
        self._named: set[int] = set()
        # The received statuses, up to the last one of the peer's copies, have all that the peer knows.
        self._is_complete = True
        self._checkpointing: deque[Checkpointing] = deque()
        self._checkpointed = 0
        # The serial of the last received status that had channel state, and the last that was acknowledged.
        self._ack_wanted = 0
        self._ack_sent = 0

    @property
    def peer(self) -> bytes:
        return self.link.peer

    # --- sent ---

    def request_full_state(self) -> None:
        """Request the full state of the peer's copies."""
        self.asks_full_state, self.answered = True, False

    def use_this_link(self) -> None:
        """The peer has sent a status over the other connection: the next status over this one asks."""
        self._must_answer = self.asks_full_state = True

    def topic_changed(self, copy: LocalCopy, name: str) -> None:
        """A checkpoint of a topic was written."""
        if self._sends_states and copy.number not in self._full:
            self._changed.setdefault(copy.number, set()).add(name)

    def copy_changed(self, copy: LocalCopy) -> None:
        """The copy is another one than before: it was opened, or is new."""
        self._full.add(copy.number)

    def has_state_of(self, copy: LocalCopy) -> bool:
        """Whether the peer has all channel state of the copy in a checkpoint."""
        number = copy.number
        if not self._sends_states or self._sends_all or number in self._full or self._changed.get(number):
            return False
        return self.acknowledged >= self._state_serials.get(number, 1 << 62)

    def send(
        self,
        copies: list[LocalCopy],
        heads: list[Status],
        delivered: Callable[[LocalCopy], Pending],
        *,
        takes_states: bool,
    ) -> None:
        """Send the statuses of all copies here, if anything in them has changed.

        *heads* are these without serials; a node without a copy has one too. *takes_states*: the peer has a
        copy that can learn channel state.
        """
        while self._checkpointing and self._checkpointing[0].is_done:
            self._checkpointed = self._checkpointing.popleft().serial
        if not self._sends_states and takes_states:
            self._sends_states = self._sends_all = True
        if self._sends_states and self._sends_all:
            self._full |= {copy.number for copy in copies}
            self._sends_all = False
        news = self._sends_states and any(
            copy.number in self._full or self._changed.get(copy.number) for copy in copies if copy.has_state
        )
        acks = self._ack_sent < self._ack_wanted <= self._checkpointed
        if not (news or acks or self.asks_full_state or self._must_answer or heads != self._sent):
            return
        self._sent, self._ack_sent = heads, self._checkpointed
        self._must_answer = False
        for index, head in enumerate(heads):
            self._serial += 1
            full = bool(copies) and self._send_states(copies[index], delivered)
            is_last = index + 1 == len(heads)
            self.link.send(
                replace(
                    head,
                    serial=self._serial,
                    checkpointed=self._checkpointed,
                    full=full,
                    ask=self.asks_full_state and is_last,
                    last=is_last,
                )
            )
        self.asks_full_state = False

    def _send_states(self, copy: LocalCopy, delivered: Callable[[LocalCopy], Pending]) -> bool:
        """Send the channel state of a copy; True when it is the full state."""
        number = copy.number
        if not (self._sends_states and copy.has_state):
            return False
        full = number in self._full
        names = list(copy.topics) if full else sorted(self._changed.get(number, ()))
        self._full.discard(number)
        self._changed.pop(number, None)
        pending = delivered(copy)
        is_news = full
        for name in names:
            topic = copy.topics.get(name)
            states: Iterable[ChannelState] = ()
            if topic is None:
                states = (nothing_pending(name, copy.origin, number),)
            elif not topic.ephemeral:
                states = states_of(topic, copy.origin, number, pending.get(name, {}))
            for state in states:
                self.link.send(state)
                is_news = True
        if is_news:
            self._state_serials[number] = self._serial
        return full

    # --- received ---

    def take_state(self, state: ChannelState) -> None:
        """Take the channel state of a topic; the status of its copy follows."""
        self._states.setdefault(state.copy, []).append(state)

    def take(self, status: Status) -> list[ChannelState]:
        """Take a status; returns the channel state that came before it."""
        states = self._states.pop(status.copy, [])
        self.acknowledged = max(self.acknowledged, status.checkpointed)
        if status.kind != CopyKind.NONE:
            self._named.add(status.copy)
        if states or status.full:
            self._ack_wanted = status.serial
        if status.ask:
            self._must_answer = True
            self._sends_all = self._sends_states
        self._is_complete = self._is_complete and (status.full or status.kind in _WITHOUT_STATE)
        return states

    def learned(self, serial: int, news: set[Topic]) -> None:
        """The channel state of a status was news for these topics."""
        self._checkpointing.append(Checkpointing(serial, news))

    def last_taken(self) -> set[int]:
        """The last status of the peer's copies was taken; returns their numbers."""
        # A status that was sent before the query is not complete.
        self.answered = self.answered or self._is_complete
        self._is_complete = True
        named, self._named = self._named, set()
        return named

    def checkpointed(self, topic: Topic, senders: list[Sender]) -> None:
        """A checkpoint of a topic was written, and sent to the replicas."""
        for one in self._checkpointing:
            one.checkpointed(topic, senders)


def no_copy(origin: bytes, node: bytes) -> Status:
    """The status of a node without a copy of that log."""
    return Status(origin, 0, CopyKind.NONE, 0, 0, node, last=True)
