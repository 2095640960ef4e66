"""An engine without sockets or disk, for tests that send it bytes."""

import struct

from nsqclient.wire.frames import FrameParser
from nsqclient.wire.names import is_ephemeral
from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel, Consumer
from nsqd.engine.limits import Limits
from nsqd.engine.topic import Topic
from nsqd.log.ids import MessageIds
from nsqd.protocol.session import Session
from nsqd.server.delivery import serve

NODE_ID = 5
SECOND = 1_000_000_000


class Outlet:
    """A consumer's sink that keeps what it is sent."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.closed = False

    def send_messages(self, frames: list[bytes]) -> None:
        self.frames.extend(frames)

    def close(self) -> None:
        self.closed = True

    def taken(self) -> list[tuple[bytes, int, bytes]]:
        """Return (id, attempts, body) of each message since the last call."""
        parser = FrameParser()
        frames = parser.feed(b"".join(self.frames))
        self.frames = []
        return [(data[10:26], struct.unpack_from(">H", data, 8)[0], data[26:]) for _, data in frames]


def bodies(outlet: Outlet) -> list[bytes]:
    """Return the body of each message since the last call."""
    return [body for _, _, body in outlet.taken()]


def counts(channel: Channel) -> tuple[int, int, int]:
    """How many messages are pending, in flight and deferred."""
    backlog = channel.backlog
    return backlog.pending.count, backlog.in_flight.count, backlog.deferred.count


class NoDisk:
    """The log on disk of a topic whose messages are all in memory."""

    reads = 0

    @property
    def segments(self) -> "NoDisk":
        return self

    def read(self, _seq: int, _end: int) -> None:
        return None

    def frames(self, _seqs: list[int], _room: int, *, extended: bool) -> list[bytes]:
        return []

    def seek(self, _number: int) -> int:
        return 0

    page_start = seek

    def weigh(self, *_range: object) -> int:
        return 0


def no_disk(topic_name: str) -> NoDisk | None:
    """Make the log of a topic."""
    return None if is_ephemeral(topic_name) else NoDisk()


class Node:
    """A broker in memory, with the steps of the server at the end of a turn."""

    def __init__(self, **limits: int) -> None:
        self.now_ns = 1_700_000_000 * SECOND
        self.broker = Broker(MessageIds(NODE_ID), Limits(**limits), no_disk)

    def advance(self, seconds: float) -> None:
        """Let time pass and run what became due."""
        self.now_ns += int(seconds * SECOND)
        self.broker.expire(self.now_ns)
        self.turn()

    def turn(self) -> None:
        """Store (nowhere), commit and deliver, as the server does at the end of a turn."""
        for topic in list(self.broker.dirty):
            topic.staged()
            self.broker.commit(topic)
        self.broker.dirty.clear()
        while self.broker.wake:
            channel, _ = self.broker.wake.popitem()
            if serve(self.broker, channel, self.now_ns):
                self.broker.serve(channel)  # for the next turn

    def topic(self, name: str = "t") -> Topic:
        return self.broker.topic(name, self.now_ns)

    def channel(self, name: str = "c", topic: str = "t") -> Channel:
        return self.broker.channel(self.topic(topic), name)

    def publish(self, *bodies: bytes, topic: str = "t") -> None:
        for body in bodies:
            self.topic(topic).stage(body, self.now_ns)
        self.broker.dirty[self.topic(topic)] = None
        self.turn()

    def subscribe(self, channel: Channel, rdy: int = 0, msg_timeout: float = 60) -> tuple[Consumer, Outlet]:
        outlet = Outlet()
        consumer = Consumer(outlet, int(msg_timeout * SECOND))
        channel.subscribe(consumer, self.broker.limits.max_channel_consumers)
        self.ready(consumer, rdy)
        return consumer, outlet

    def ready(self, consumer: Consumer, rdy: int) -> None:
        consumer.rdy = rdy
        assert consumer.channel is not None
        if consumer.channel.refresh(consumer):
            self.broker.serve(consumer.channel)
        self.turn()

    def finish(self, consumer: Consumer, message_id: bytes) -> None:
        assert consumer.channel is not None
        assert not consumer.channel.finish([self.broker.ids.decode(message_id)], consumer, self.now_ns)
        self.ready(consumer, consumer.rdy)

    def session(self) -> tuple[Session, Outlet]:
        outlet = Outlet()
        return Session(self.broker, outlet, "127.0.0.1", lambda rate: lambda: rate > 50), outlet


class Client:
    """Sends bytes to a session and collects the frames that it answers."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.session, self.outlet = node.session()
        self.session.receive(b"  V2", node.now_ns)

    def says(self, data: bytes) -> list[tuple[int, bytes]]:
        self.session.receive(data, self.node.now_ns)
        return self.hears()

    def step(self) -> list[tuple[int, bytes]]:
        """Let the session publish the next slice of a long batch."""
        self.session.resume(self.node.now_ns)
        return self.hears()

    def hears(self) -> list[tuple[int, bytes]]:
        out = self.session.take_replies()
        self.node.turn()
        return FrameParser().feed(out)
