"""The topics and channels of an nsqd in memory. Pure: time is an argument."""

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Protocol


class Reader(Protocol):
    """A connection that is subscribed to a channel."""

    @property
    def wants(self) -> bool:
        """Whether it takes one more message."""

    def deliver(self, message: "Stored") -> None: ...

    def timed_out(self) -> None:
        """A delivered message is no longer in flight."""


@dataclass(slots=True, eq=False)
class Stored:
    """One message as one channel has it."""

    id: bytes
    body: bytes
    headers: dict[str, str]
    timestamp_ns: int
    attempts: int = 0


@dataclass(slots=True)
class InFlightMessage:
    """A message in flight."""

    message: Stored
    reader: Reader
    until: float


@dataclass(slots=True)
class Channel:
    """The messages of one channel, and its readers."""

    waiting: deque[Stored] = field(default_factory=deque)
    in_flight: dict[bytes, InFlightMessage] = field(default_factory=dict)
    deferred: list[tuple[float, Stored]] = field(default_factory=list)
    finished: list[bytes] = field(default_factory=list)  # bodies
    requeued: int = 0
    timed_out: int = 0
    readers: list[Reader] = field(default_factory=list)

    def put(self, message: Stored, due: float | None = None) -> None:
        if due is None:
            self.waiting.append(message)
        else:
            self.deferred.append((due, message))

    def pump(self, now: float, msg_timeout: float) -> None:
        """Deliver waiting messages to the readers that want some, in turn."""
        while self.waiting:
            ready = next((reader for reader in self.readers if reader.wants), None)
            if ready is None:
                return
            self.readers.remove(ready)
            self.readers.append(ready)
            message = self.waiting.popleft()
            message.attempts += 1
            self.in_flight[message.id] = InFlightMessage(message, ready, now + msg_timeout)
            ready.deliver(message)

    def answered(self, message_id: bytes, reader: Reader) -> Stored | None:
        """Remove a message from those in flight; None when this reader does not have it."""
        held = self.in_flight.get(message_id)
        if held is None or held.reader is not reader:
            return None
        del self.in_flight[message_id]
        return held.message

    def remove_reader(self, reader: Reader) -> None:
        """A connection has ended: its messages in flight wait again."""
        if reader in self.readers:
            self.readers.remove(reader)
        for held in [held for held in self.in_flight.values() if held.reader is reader]:
            del self.in_flight[held.message.id]
            self.waiting.append(held.message)

    def expire(self, now: float) -> None:
        """Let messages that are due or timed out wait again."""
        for held in [held for held in self.in_flight.values() if held.until <= now]:
            del self.in_flight[held.message.id]
            self.timed_out += 1
            self.waiting.append(held.message)
            held.reader.timed_out()
        due = sorted((entry for entry in self.deferred if entry[0] <= now), key=lambda entry: entry[0])
        self.deferred = [entry for entry in self.deferred if entry[0] > now]
        self.waiting.extend(message for _, message in due)


@dataclass(slots=True)
class Topic:
    """Everything published to it, and its channels."""

    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    channels: dict[str, Channel] = field(default_factory=dict)
    early: list[tuple[float | None, Stored]] = field(default_factory=list)  # before the first channel

    def publish(self, message: Stored, due: float | None) -> None:
        self.bodies.append(message.body)
        self.headers.append(message.headers)
        if not self.channels:
            self.early.append((due, message))
        for channel in self.channels.values():
            # Each channel counts its own attempts.
            copy = Stored(message.id, message.body, message.headers, message.timestamp_ns)
            channel.put(copy, due)

    def channel(self, name: str) -> Channel:
        if name not in self.channels:
            channel = self.channels[name] = Channel()
            early, self.early = self.early, []
            for due, message in early:
                channel.put(message, due)
        return self.channels[name]


class Broker:
    """The topics, and a clock that only *advance* moves."""

    def __init__(self, *, headers: bool, msg_timeout: float) -> None:
        self.has_headers = headers
        self.msg_timeout = msg_timeout  # seconds
        self.now = 0.0
        self.topics: defaultdict[str, Topic] = defaultdict(Topic)
        self.refusals: list[str] = []  # the errors that answer the next publishes
        self._published = 0

    def publish(self, topic: str, body: bytes, delay: float | None, headers: dict[str, str]) -> None:
        self._published += 1
        message = Stored(b"%016x" % self._published, body, headers, round(self.now * 1e9))
        self.topics[topic].publish(message, None if delay is None else self.now + delay)
        self._pump(self.topics[topic])

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for topic in self.topics.values():
            for channel in topic.channels.values():
                channel.expire(self.now)
            self._pump(topic)

    def _pump(self, topic: Topic) -> None:
        for channel in topic.channels.values():
            channel.pump(self.now, self.msg_timeout)
