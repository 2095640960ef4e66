"""A node on a simulated disk: all code of replication, without sockets and threads."""

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from nsqclient.wire.frames import FrameParser
from nsqd.engine.broker import Broker, Change
from nsqd.engine.channel import Channel, Consumer
from nsqd.engine.in_flight import NotInFlight
from nsqd.engine.limits import Limits
from nsqd.engine.state import wanted_of
from nsqd.engine.topic import Topic
from nsqd.log.ids import MessageIds
from nsqd.protocol.consume import owner_of
from nsqd.replication.copies import Copies
from nsqd.replication.frames import Hello
from nsqd.replication.handshake import ACCEPTOR, CONNECTOR, Handshake
from nsqd.replication.job import Job
from nsqd.replication.link import PeerLink
from nsqd.replication.log_stream import ReplicaSettings
from nsqd.replication.node_state import NodeState
from nsqd.replication.records import NodeRecordFile
from nsqd.replication.sender import PendingAck
from nsqd.replication.startup import promote_copied_log, remove_transferred
from nsqd.server.delivery import serve
from nsqd.storage.data_path import DataPath, StorageOptions
from nsqd.storage.metadata import Metadata
from nsqd.storage.topic_log import TopicLog, store_of
from tests.campaign.replication.counted import CountedNode
from tests.support.jobs import error_of
from tests.support.simulated_disk import Call, SimulatedDisk

DATA: Final = Path("/data")
# Faults of the disk strike what is replication's, so that no publish fails.
OF_REPLICATION: Final = (f"{DATA}/replicas/*", f"{DATA}/owned/*", f"{DATA}/replication.json*")
SECOND: Final = 1_000_000_000
SEGMENT: Final = 1500
MSG_TIMEOUT: Final = 20 * SECOND


class Killed(BaseException):
    """The process of a node is killed at a call of its disk."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass
class Surroundings:
    """What a node finds at its start, and what may change while it runs."""

    settings: ReplicaSettings
    address: str
    # Added to its wall clock, in ns.
    ahead: int
    draw: Callable[[int], bytes]
    # Days that have passed in addition to the simulated seconds.
    days: Callable[[], int]
    secrets: Callable[[], tuple[bytes, ...]]
    # The highest version of the stream that it speaks.
    max_version: int
    # What nodes decided, of all nodes.
    events: Counter[str]
    # Called with each message when it is sent to a consumer: topic, channel, body.
    sent: Callable[[str, str, bytes], None]


@dataclass
class Reader:
    """A consumer of one channel, and its unanswered messages."""

    topic: str
    channel: str
    sent: Callable[[str, str, bytes], None]
    frames: list[bytes] = field(default_factory=list)
    # Ids and bodies of unanswered messages.
    unanswered: list[tuple[bytes, bytes]] = field(default_factory=list)
    consumer: Consumer | None = None

    def send_messages(self, frames: list[bytes]) -> None:
        self.frames.extend(frames)
        for _, data in FrameParser().feed(b"".join(frames)):
            self.sent(self.topic, self.channel, data[26:])

    def close(self) -> None: ...

    def take(self) -> list[tuple[bytes, bytes]]:
        """Return the messages that have come since the last call."""
        parser = FrameParser()
        frames = parser.feed(b"".join(self.frames))
        self.frames = []
        new = [(data[10:26], data[26:]) for _, data in frames]
        assert all(struct.unpack_from(">H", data, 8)[0] for _, data in frames)
        self.unanswered += new
        return new


class SimulatedNode:
    """A node; each start creates a new object from its disk."""

    def __init__(
        self,
        number: int,
        disk: SimulatedDisk,
        now: int,
        around: Surroundings,
    ) -> None:
        """*now* is its steady clock in ns."""
        self.number, self.disk, self.now = number, disk, now
        self.around = around
        self.address = around.address
        self.log: list[str] = []
        self.errors: list[str] = []
        # The process is killed at that call of its disk; never if it is negative.
        self.calls_left = -1
        # Its disk is slow: jobs end later, in any order.
        self.is_slow = False
        self._slow_jobs: list[Job] = []
        # The event loop is at work for publishers or peers, so nothing may be synced.
        self._in_loop = False
        disk.before_call = self._called
        draw, days = around.draw, around.days
        self.data = DataPath(DATA, StorageOptions(SEGMENT), self.log.append, disk, node_id=number)
        limits = Limits(mem_queue_size=0, msg_timeout_ns=MSG_TIMEOUT)
        self.broker = Broker(MessageIds(number), limits, self.data.create_log)
        self.broker.wall.offset_ns = around.ahead
        self.data.reservation.draw = draw
        named = self.data.reservation.named()
        if named:
            remove_transferred(disk, DATA, named)
        promote_copied_log(disk, DATA, self.data.reservation)
        self.data.restore(self.broker, Metadata(), now)
        self.broker.events.clear()
        self.identity = self.data.reservation.identity
        file = NodeRecordFile.load(disk, DATA, self.identity)
        file.begin_incarnation(draw)
        state = NodeState(
            around.settings,
            file,
            around.address,
            self.broker,
            self.data,
            Copies(disk, DATA),
            lambda: self.now // SECOND + days() * 86_400,
            info=self.log.append,
            warn=self.log.append,
        )
        self.replication = CountedNode(state, around.events)
        self.replication.begin(now)
        self.readers: list[Reader] = []
        self.turn()

    def _called(self, call: Call) -> None:
        if self._in_loop and call.operation in ("sync", "sync_folder") and _is_of_replication(call.path):
            self.errors.append(f"the event loop waited for {call}")
        if self.calls_left > 0:
            self.calls_left -= 1
            if not self.calls_left:
                raise Killed(self.number)

    @contextmanager
    def in_loop(self) -> Iterator[None]:
        """Publishers wait, so nothing is synced during this time."""
        self._in_loop = True
        try:
            yield
        finally:
            self._in_loop = False

    def receive(self, link: PeerLink, data: bytes) -> None:
        """Take bytes of a peer."""
        with self.in_loop():
            link.receive(data, self.now)

    def _do(self, job: Job) -> None:
        """Run a job as a thread does."""
        self.replication.job_ended(job, error_of(job, self.disk), self.now)

    def _do_slow(self) -> None:
        while self._slow_jobs and (not self.is_slow or self.around.draw(1) > b"\x80"):
            self._do(self._slow_jobs.pop(self.around.draw(1)[0] % len(self._slow_jobs)))

    def link(self, *, connector: bool, expected: bytes = b"") -> PeerLink:
        """Return this node's side of a new connection."""
        record = self.replication.state.record
        hello = Hello(
            *(self.identity, record.incarnation, record.token, record.previous_token),
            node_id=self.number,
            address=self.address,
            nonce=self.around.draw(32),
            max_version=self.around.max_version,
        )
        handshake = Handshake(
            CONNECTOR if connector else ACCEPTOR,
            hello,
            self.around.secrets,
            self.replication.state.incarnations,
            expected,
        )
        link = PeerLink(self.replication, handshake, self.now, connector=connector)
        self.replication.state.links.append(link)
        return link

    # --- what clients do ---

    def publish(self, name: str, body: bytes) -> PendingAck | str | None:
        """Publish: what the publisher waits for, None for an OK now, or why it is refused."""
        if self.broker.draining:
            return "draining"
        topic = self.broker.topic(name, self.now)
        store = self.store(topic)
        reason = self.replication.primary.lacks(store)
        if reason:
            return reason
        topic.stage(body, self.now)
        self.broker.dirty[topic] = None
        with self.in_loop():
            self._write()
            return self.replication.primary.wait(store)

    def store(self, topic: Topic) -> TopicLog:
        store = store_of(topic)
        assert store is not None
        return store

    def channel(self, name: str, channel: str) -> Channel:
        made = self.broker.channel(self.broker.topic(name, self.now), channel)
        self.turn()
        return made

    def read(self, name: str, channel: str, rdy: int) -> Reader:
        """Subscribe a consumer and return it."""
        reader = Reader(name, channel, self.around.sent)
        found = self.channel(name, channel)
        reader.consumer = Consumer(reader, MSG_TIMEOUT)
        found.subscribe(reader.consumer, self.broker.limits.max_channel_consumers)
        self.readers.append(reader)
        self.ready(reader, rdy)
        return reader

    def ready(self, reader: Reader, rdy: int) -> None:
        consumer = reader.consumer
        assert consumer is not None
        consumer.rdy = rdy
        if consumer.channel is not None and consumer.channel.refresh(consumer):
            self.broker.serve(consumer.channel)
        self.turn()

    def answer(self, reader: Reader, message: tuple[bytes, bytes], verb: str) -> bool:
        """Answer with FIN or REQ; say whether that was accepted."""
        reader.unanswered.remove(message)
        consumer = reader.consumer
        if consumer is None or consumer.channel is None:
            return False
        channel, seq = owner_of(consumer.channel, self.broker.ids, message[0])
        if seq < 0 or not channel.backlog.in_flight.has(seq):
            return False
        try:
            if verb == "FIN":
                for _, why in channel.finish([seq], consumer, self.now):
                    raise why
            else:
                channel.requeue(seq, consumer, 0, self.now)
        except NotInFlight:
            # Another consumer has the message now.
            return False
        if consumer.channel.refresh(consumer):
            self.broker.serve(consumer.channel)
        self.broker.serve(consumer.channel)
        self.turn()
        return True

    def leave(self, reader: Reader) -> None:
        """Close the consumer's connection."""
        self.readers.remove(reader)
        if reader.consumer is not None and reader.consumer.channel is not None:
            channel = reader.consumer.channel
            channel.unsubscribe(reader.consumer)
            self.broker.serve(channel)
        self.turn()

    def forget_readers(self, topic: str, channel: str | None) -> None:
        """Close the connections of a channel's consumers, or of all of the topic's, before it is deleted."""
        for reader in [one for one in self.readers if one.topic == topic and channel in (None, one.channel)]:
            self.leave(reader)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its promoted copies, as the server does."""
        self.forget_readers(name, None)
        topic = self.broker.topics[name]
        self.broker.delete_topic(name)
        self.data.delete(topic)
        self.replication.topic_deleted(topic)
        self.disk.sync_folder(DATA)
        self.data.deleted += self.data.deleted_unsynced
        self.data.deleted_unsynced = []
        self.data.remove_deleted()
        self.work()
        self.broker.events.clear()

    # --- time ---

    def turn(self) -> None:
        self._write()
        for _ in range(50):
            if not self.broker.wake:
                return
            channel, _ = self.broker.wake.popitem()
            if not channel.deleted and serve(self.broker, channel, self.now):
                self.broker.serve(channel)

    def _write(self) -> None:
        for event in self.broker.events:
            if event.change is Change.TOPIC_CREATED:
                self.replication.topic_created(event.topic)
        self.broker.events.clear()
        while self.broker.dirty:
            topic, _ = self.broker.dirty.popitem()
            store = self.store(topic)
            blocks, notes = topic.staged(), topic.staged_notes()
            if blocks and blocks[-1].next > self.broker.sequences.reserved:
                self.data.reservation.extend(blocks[-1].next)
            if blocks or notes:
                store.appender.append(blocks, notes, topic.log.next_seq)
            self.broker.commit(topic)

    def advance(self, now: int) -> None:
        """Advance the time and do everything that is due."""
        self.now = now
        self._do_slow()
        self.replication.state.set_draining(draining=self.broker.draining)
        self.broker.expire(now)
        self.replication.tick(now)
        self.work()
        self.turn()

    def work(self) -> None:
        """Run the jobs of replication."""
        node = self.replication
        for _ in range(20):
            jobs = node.state.take_jobs()
            for job in jobs:
                if self.is_slow and self.around.draw(1) > b"\x60":
                    self._slow_jobs.append(job)
                else:
                    self._do(job)
            for topic in list(node.state.to_checkpoint):
                del node.state.to_checkpoint[topic]
                if not (topic.deleted or self.write_checkpoint(topic)):
                    node.state.to_checkpoint[topic] = None
            if node.state.local_syncs:
                self.sync()
                for check in node.state.local_syncs:
                    check.synced_here = True
                node.state.local_syncs = []
            if not jobs:
                break
        with suppress(OSError):
            node.copies.remove_deleted()

    def checkpoint(self) -> None:
        """Run one round of the checkpointer, which runs once a second."""
        for topic in list(self.broker.topics.values()):
            self.broker.sequences.note_used(topic.sequence_end)
            for copy in topic.promoted:
                if copy.take_changed():
                    self.write_checkpoint(copy)
            store = self.store(topic)
            if not topic.take_changed():
                continue
            low_water = topic.unwanted_below()
            log_start = store.cleaner.log_start_after_drop(low_water, store.segments.notes)
            if log_start is not None:
                topic.log.log_start = max(topic.log.log_start, log_start)
                # Files are removed when both checkpoints agree.
                topic.changed = True
            self.write_checkpoint(topic)
            covered = store.checkpoints
            store.cleaner.drop_below(
                min(covered.covered_low_water, topic.unwanted_below()), covered.covered_notes
            )
            store.cleaner.remove_files()

    def write_checkpoint(self, topic: Topic) -> bool:
        """Write a checkpoint; False if that failed."""
        store = self.store(topic)
        topic.take_changed()
        job = store.checkpoints.start_job(topic, store.checkpoint_position(topic.log.next_seq))
        try:
            store.appender.make_folder()
            job.run(self.disk)
        except OSError:
            # The next round tries it again.
            topic.changed = True
            return False
        store.checkpoints.end(job)
        if not topic.deleted:
            self.replication.checkpointed(topic, store, job)
        return True

    def compact(self, name: str) -> None:
        topic = self.broker.topics.get(name)
        if topic is None:
            return
        store = self.store(topic)
        job = store.cleaner.begin_compaction(
            wanted_of(topic), store.checkpoints.covered_notes, topic.unwanted_below()
        )
        job.run()
        store.cleaner.end_compaction(job)
        store.cleaner.remove_files()

    def sync(self) -> None:
        for topic in self.broker.topics.values():
            store = self.store(topic)
            job = store.appender.begin_sync()
            if job is not None:
                job.run(self.disk)
                store.appender.end_sync(job, None)


def _is_of_replication(path: str) -> bool:
    return any(fnmatchcase(path, one) for one in OF_REPLICATION)
