"""The model: which messages each topic and channel has, in which state and order, with how many attempts.

It knows no log, no checkpoint and no ranges: only the rules that the pages state. Times are those of
`time.time()`.
"""

import time
from dataclasses import dataclass, field
from typing import Final

# Longer than any history: such a message never falls due.
FAR_S: Final = 600.0


@dataclass(eq=False)
class Message:
    """A message; *only* names the one channel that gets it. The id is learned from the node."""

    body: str
    headers: dict[str, str]
    due: float = 0.0
    only: str = ""
    id: str = ""
    origin: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return f"<{self.body}>"


@dataclass
class Policy:
    """The settings of a topic or channel that the model knows."""

    max_depth: int = 0
    drop_oldest: bool = False
    max_attempts: int = 0
    retry_delay: bool = False
    dedup: bool = False
    retain: bool = False

    def definition(self) -> dict[str, object]:
        """The definition for a PUT."""
        said: dict[str, object] = {"max_defer": "1h"}
        if self.retain:
            said["retain_time"] = "1h"
        if self.dedup:
            said["dedup_window"] = "1h"
        if self.max_depth:
            said["max_depth"] = self.max_depth
            said["when_full"] = "drop-oldest" if self.drop_oldest else "reject"
        if self.max_attempts:
            said["max_attempts"] = self.max_attempts
        if self.retry_delay:
            said |= {"retry_delay": "10m", "retry_delay_max": "20m"}
        return said


@dataclass
class Channel:
    """What one channel has to deliver; a message of the topic that is nowhere here is finished."""

    name: str
    # From this index of the topic's messages on it gets what the topic holds.
    begin: int = 0
    queue: list[Message] = field(default_factory=list)
    deferred: dict[Message, float] = field(default_factory=dict)
    in_flight: dict[Message, None] = field(default_factory=dict)
    dead_lettering: dict[Message, None] = field(default_factory=dict)
    attempts: dict[Message, int] = field(default_factory=dict)
    # Finished by a consumer since the last durable moment: a kill may bring them back.
    unsure: set[Message] = field(default_factory=set)
    paused: bool = False

    def pending(self) -> list[Message]:
        """Every message that is not finished."""
        return [*self.queue, *self.deferred, *self.in_flight, *self.dead_lettering]

    def remove(self, message: Message) -> None:
        """Take a message out of its state."""
        if message in self.queue:
            self.queue.remove(message)
        for states in (self.deferred, self.in_flight, self.dead_lettering):
            states.pop(message, None)  # type: ignore[attr-defined]

    def finish(self, message: Message) -> None:
        self.remove(message)
        self.attempts.pop(message, None)

    def state(self, message: Message) -> tuple[str, int | None, int | None]:
        """State, attempts and place."""
        attempts = self.attempts.get(message, 0)
        if message in self.queue:
            return "waiting", attempts, self.queue.index(message) + 1
        if message in self.deferred:
            return "deferred", attempts, None
        if message in self.in_flight:
            return "in_flight", attempts, None
        if message in self.dead_lettering:
            return "dead_lettering", attempts, None
        return "finished", None, None

    def restart(self, order: list[Message]) -> None:
        """A new process: what was in flight waits; messages never delivered come first, each by position."""
        waiting = {*self.queue, *self.in_flight, *self.dead_lettering}
        self.in_flight.clear()
        self.dead_lettering.clear()
        self.queue = [one for one in order if one in waiting]
        self.sort()

    def sort(self) -> None:
        """Messages that were delivered before wait behind the others."""
        self.queue.sort(key=lambda one: one in self.attempts)


@dataclass
class Topic:
    """A topic, its messages in the order of the log, and what it holds for its channels."""

    name: str
    messages: list[Message] = field(default_factory=list)
    held: list[Message] = field(default_factory=list)
    held_deferred: dict[Message, float] = field(default_factory=dict)
    channels: dict[str, Channel] = field(default_factory=dict)
    paused: bool = False
    dedup_ids: set[str] = field(default_factory=set)

    @property
    def flowing(self) -> bool:
        return bool(self.channels) and not self.paused

    def state(self, channel: Channel, message: Message) -> tuple[str, int | None, int | None]:
        """The state of a message on a channel, also of one that the topic holds."""
        if self.holds_for(channel, message):
            return ("deferred" if message in self.held_deferred else "waiting"), 0, None
        return channel.state(message)

    def holds_for(self, channel: Channel, message: Message) -> bool:
        """Whether the channel will get this message when the topic is unpaused."""
        held = message in self.held_deferred or message in self.held
        return held and self.messages.index(message) >= channel.begin

    def held_count(self, channel: Channel) -> int:
        return sum(self.holds_for(channel, one) for one in (*self.held, *self.held_deferred))


class Model:
    """All topics, and the rules."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        # The policy of topics and all their channels, by topic; and of single channels.
        self.of_topic: dict[str, Policy] = {}
        self.of_channel: dict[tuple[str, str], Policy] = {}

    def policy(self, topic: str, channel: str = "") -> Policy:
        found = self.of_channel.get((topic, channel)) if channel else None
        return found or self.of_topic.get(topic) or Policy()

    # --- publishing ---

    def topic(self, name: str) -> Topic:
        return self.topics.setdefault(name, Topic(name))

    def admits(self, topic: Topic, count: int) -> bool:
        """Whether so many more messages are within all bounds that refuse."""

        def full(policy: Policy, depth: int) -> bool:
            return bool(policy.max_depth) and not policy.drop_oldest and depth + count > policy.max_depth

        if not topic.flowing and full(self.policy(topic.name), len(topic.held) + len(topic.held_deferred)):
            return False
        return not any(
            full(self.policy(topic.name, one.name), len(one.pending()) + topic.held_count(one))
            for one in topic.channels.values()
        )

    def publish(self, topic: Topic, messages: list[Message]) -> bool:
        """Messages that are published together; False if they are refused."""
        if self.policy(topic.name).dedup:
            fresh: list[Message] = []
            ids = set(topic.dedup_ids)
            for message in messages:
                dedup_id = message.headers.get("dedup-id")
                if dedup_id is None or dedup_id not in ids:
                    fresh.append(message)
                    ids.add(dedup_id or "")
            messages = fresh
            if not messages:
                return True
        if not self.admits(topic, len(messages)):
            return False
        topic.dedup_ids |= {one.headers["dedup-id"] for one in messages if "dedup-id" in one.headers}
        self._append(topic, messages)
        self.settle()
        return True

    def _append(self, topic: Topic, messages: list[Message]) -> None:
        topic.messages += messages
        for message in messages:
            if not topic.flowing:
                if message.due:
                    topic.held_deferred[message] = message.due
                else:
                    topic.held.append(message)
                continue
            for channel in topic.channels.values():
                if message.only and message.only != channel.name:
                    continue
                if message.due:
                    channel.deferred[message] = message.due
                else:
                    channel.queue.append(message)

    # --- channels and flow ---

    def create_channel(self, topic: Topic, name: str, start: int | None = None) -> None:
        """With *start* it gets all messages of the topic from that index on."""
        if name in topic.channels:
            return
        channel = topic.channels[name] = Channel(name)
        if start is not None:
            channel.begin = start
            self._replay(topic, channel, start)
        self.settle()

    def _replay(self, topic: Topic, channel: Channel, start: int) -> None:
        """Everything from *start* on waits in the order of the log, unless it is somewhere already.

        From the first message that the topic holds on it gets what the topic hands over.
        """
        here = {*channel.deferred, *channel.in_flight, *channel.dead_lettering}
        held = [topic.messages.index(one) for one in (*topic.held, *topic.held_deferred)]
        channel.queue = []
        for message in topic.messages[start : min(held, default=len(topic.messages))]:
            if (message.only and message.only != channel.name) or message in here:
                continue
            if message.due > time.time():
                channel.deferred[message] = message.due
            else:
                channel.queue.append(message)
        channel.attempts = {one: count for one, count in channel.attempts.items() if one in channel.pending()}
        channel.sort()

    def seek(self, topic: Topic, channel: Channel, start: int) -> None:
        self.commit(topic, channel, start)
        channel.begin = start
        self._replay(topic, channel, start)
        channel.unsure.clear()
        self.settle()

    def commit(self, topic: Topic, channel: Channel, start: int) -> None:
        """Everything before *start* is finished, also what the topic holds."""
        for message in topic.messages[:start]:
            channel.finish(message)
        channel.begin = max(channel.begin, start)

    def flow(self, topic: Topic) -> None:
        """Hand over what the topic holds, if messages flow."""
        if not topic.flowing:
            return
        for channel in topic.channels.values():
            channel.queue += [one for one in topic.held if topic.holds_for(channel, one)]
            for message, due in topic.held_deferred.items():
                if topic.holds_for(channel, message):
                    channel.deferred[message] = due
        topic.held.clear()
        topic.held_deferred.clear()

    def empty(self, channel: Channel) -> None:
        for message in channel.pending():
            channel.finish(message)

    # --- deliveries ---

    def take(self, topic: Topic, channel: Channel, count: int) -> list[Message]:
        """The next messages go in flight."""
        if channel.paused:
            return []
        taken = channel.queue[:count]
        del channel.queue[:count]
        for message in taken:
            channel.in_flight[message] = None
            channel.attempts[message] = channel.attempts.get(message, 0) + 1
        self.settle()
        return taken

    def come_back(
        self, topic: Topic, channel: Channel, messages: list[Message], why: str, due: float = 0.0
    ) -> None:
        """Messages come back: requeued, timed-out or returned."""
        policy = self.policy(topic.name, channel.name)
        most = policy.max_attempts * (2 if why == "returned" else 1)
        for message in messages:
            channel.remove(message)
            if most and channel.attempts[message] >= most:
                channel.dead_lettering[message] = None
            elif due:
                channel.deferred[message] = due
            elif policy.retry_delay and why != "returned":
                channel.deferred[message] = time.time() + FAR_S
            else:
                channel.queue.append(message)
        self.settle()

    def put_off(self, topic: Topic, channel: Channel, messages: list[Message], due: float) -> None:
        """An operator's requeue: policies on deliveries say nothing of it."""
        order = [one for one in topic.messages if one in messages]
        order.sort(key=lambda one: one in channel.attempts)
        for message in order:
            channel.remove(message)
        for message in order:
            if due:
                channel.deferred[message] = due
            else:
                channel.queue.append(message)
        self.settle()

    # --- what happens by itself ---

    def settle(self) -> None:
        """Hand over, drop the oldest beyond the bounds, move dead letters."""
        for topic in list(self.topics.values()):
            self.flow(topic)
            self._drop(topic)
        for topic in list(self.topics.values()):
            for channel in topic.channels.values():
                self._move_dead(topic, channel)

    def _drop(self, topic: Topic) -> None:
        policy = self.policy(topic.name)
        if policy.drop_oldest:
            while topic.held and len(topic.held) + len(topic.held_deferred) > policy.max_depth:
                del topic.held[0]
        for channel in topic.channels.values():
            policy = self.policy(topic.name, channel.name)
            while policy.drop_oldest and channel.queue and len(channel.pending()) > policy.max_depth:
                channel.finish(channel.queue[0])

    def _move_dead(self, topic: Topic, channel: Channel) -> None:
        letters = self.topic(f"{topic.name}.{channel.name}.dead") if channel.dead_lettering else None
        while letters is not None and channel.dead_lettering and self.admits(letters, 1):
            message = next(iter(channel.dead_lettering))
            channel.finish(message)
            origin = (topic.name, channel.name)
            self._append(letters, [Message(message.body, dict(message.headers), origin=origin)])

    def fall_due(self, now: float) -> None:
        """Deferred messages whose time has come wait: those never delivered first, each by position."""
        for topic in self.topics.values():
            for channel in topic.channels.values():
                due = [one for one in topic.messages if channel.deferred.get(one, now + 1) <= now]
                for message in sorted(due, key=lambda one, channel=channel: one in channel.attempts):
                    del channel.deferred[message]
                    channel.queue.append(message)
        self.settle()

    def next_due(self) -> float:
        """When the next message falls due on a channel; far off if none does."""
        dues: list[float] = []
        for topic in self.topics.values():
            for channel in topic.channels.values():
                dues += channel.deferred.values()
        return min(dues, default=time.time() + FAR_S)

    def restart(self) -> None:
        """A new process. What fell due by now waits where it would if it had never been deferred."""
        now = time.time()
        for topic in self.topics.values():
            if self.policy(topic.name).dedup:
                # They are read from the log, wherever they were published.
                topic.dedup_ids |= {
                    one.headers["dedup-id"] for one in topic.messages if "dedup-id" in one.headers
                }
            for channel in topic.channels.values():
                for message in [one for one, due in channel.deferred.items() if due <= now]:
                    del channel.deferred[message]
                    channel.queue.append(message)
        for topic in self.topics.values():
            for channel in topic.channels.values():
                channel.restart(topic.messages)
        self.settle()
