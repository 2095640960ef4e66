"""A primary and a replica on simulated disks; the test moves, cuts or delays the bytes between them."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import cast

from nsqd.engine import finished_ranges
from nsqd.engine.broker import Broker
from nsqd.engine.limits import Limits
from nsqd.engine.state import wanted_of
from nsqd.engine.topic import Topic
from nsqd.log.ids import MessageIds
from nsqd.log.ranges import Ranges
from nsqd.log.tail_records import CheckpointPosition
from nsqd.replication.copies import Copies
from nsqd.replication.fields import is_copied_name
from nsqd.replication.frames import Ack, DeleteTopic, Have, Ready
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.log_stream import LogStream
from nsqd.replication.primary import Primary, ReplicaSettings
from nsqd.replication.sender import Sender
from nsqd.storage.data_path import DataPath, StorageOptions, extents_of
from nsqd.storage.metadata import Metadata
from nsqd.storage.topic_log import TopicLog, store_of
from tests.support.jobs import WaitingJobs, error_of
from tests.support.simulated_disk import SimulatedDisk
from tests.support.stores import read_all
from tests.unit.nsqd.replication.replica_end import DATA, ORIGIN, ReplicaEnd, records

_S = 1_000_000_000
WALL = 1_700_000_000 * _S
SEGMENT = 3000


class Origin:
    """A broker with its data path and its log's `Primary`, without a server."""

    def __init__(self, disk: SimulatedDisk, settings: ReplicaSettings, data_path: Path = DATA) -> None:
        self.disk = disk
        self.warnings: list[str] = []
        self.data_path = data_path
        self.data = DataPath(data_path, StorageOptions(SEGMENT), self.warnings.append, disk, node_id=1)
        self.broker = Broker(MessageIds(1), Limits(mem_queue_size=0), self.data.create_log)
        self.data.restore(self.broker, Metadata(), WALL)
        self.primary = Primary(settings, ORIGIN, unneeded=self.unneeded)
        for topic in self.broker.topics.values():
            self._add(topic)
        self.now = WALL
        # Called for each deleted topic.
        self.deleted: Callable[[DeleteTopic], None] = lambda _frame: None

    def unneeded(self, name: str) -> Ranges:
        topic = self.broker.topics[name]
        return finished_ranges.readable_or_finished(topic, extents_of(topic))

    def _add(self, topic: Topic) -> None:
        store = store_of(topic)
        if store is not None:
            self.primary.add(store, topic.name)

    def topic(self, name: str = "t") -> Topic:
        known = name in self.broker.topics
        topic = self.broker.topic(name, self.now)
        if not known:
            self._add(topic)
        return topic

    def store(self, name: str = "t") -> TopicLog:
        store = store_of(self.topic(name))
        assert store is not None
        return store

    def publish(self, *bodies: bytes, name: str = "t") -> list[int]:
        topic = self.topic(name)
        for body in bodies:
            topic.stage(body, self.now)
        self.broker.dirty[topic] = None
        self.turn()
        return list(range(topic.log.next_seq - len(bodies), topic.log.next_seq))

    def channel(self, channel: str = "c", name: str = "t") -> None:
        self.broker.channel(self.topic(name), channel)
        self.turn()

    def turn(self) -> None:
        for topic in self.broker.dirty:
            store = store_of(topic)
            blocks, notes = topic.staged(), topic.staged_notes()
            if store is not None and (blocks or notes):
                store.appender.append(blocks, notes, topic.log.next_seq)
                self.broker.commit(topic)
        self.broker.dirty.clear()

    def delete(self, name: str = "t") -> None:
        topic = self.broker.topics[name]
        store = self.store(name)
        self.data.delete(topic)
        self.broker.delete_topic(name)
        self.primary.remove(store)
        self.deleted(DeleteTopic(ORIGIN, name, store.segments.end))

    def empty(self, name: str = "t") -> None:
        """Empty every channel of the topic."""
        topic = self.topic(name)
        for channel in topic.channels.values():
            self.broker.empty_channel(topic, channel)
        self.turn()

    def sync(self) -> None:
        for topic in self.broker.topics.values():
            store = store_of(topic)
            job = None if store is None else store.appender.begin_sync()
            if store is not None and job is not None:
                job.run(self.disk)
                store.appender.end_sync(job, None)

    def checkpoint(self) -> None:
        """Write checkpoints and remove unwanted files, as the server does once a second."""
        wanted, self.primary.wants_checkpoint = self.primary.wants_checkpoint, {}
        for topic in list(self.broker.topics.values()):
            store = store_of(topic)
            if store is None:
                continue
            if store in wanted:
                store.checkpoints.restart_chains()
            low_water = topic.unwanted_below()
            log_start = store.cleaner.log_start_after_drop(low_water, store.segments.notes)
            if log_start is not None:
                topic.log.log_start = max(topic.log.log_start, log_start)
            job = store.checkpoints.start_job(topic, store.checkpoint_position(topic.log.next_seq))
            store.appender.make_folder()
            job.run(self.disk)
            store.checkpoints.end(job)
            self.primary.checkpointed(store, job)
            covered = store.checkpoints
            store.cleaner.drop_below(
                min(covered.covered_low_water, topic.unwanted_below()), covered.covered_notes
            )
            store.cleaner.remove_files()

    def compact(self, name: str = "t") -> int:
        topic, store = self.topic(name), self.store(name)
        job = store.cleaner.begin_compaction(
            wanted_of(topic), store.checkpoints.covered_notes, topic.unwanted_below()
        )
        job.run()
        saved = store.cleaner.end_compaction(job)
        store.cleaner.remove_files()
        return saved

    def pending(self, name: str) -> set[int]:
        """The messages that are pending on any channel, or wait for the first one."""
        return {
            seq
            for start, end in finished_ranges.pending_anywhere(self.broker.topics[name])
            for seq in range(start, end)
        }

    def files(self, name: str = "t") -> dict[str, bytes]:
        """The files of a topic, without space that is reserved at their ends."""
        found = copied_files(self.disk, self.data_path / f"{name}.topic")
        sizes = {segment.path.name: segment.size for segment in self.store(name).segments}
        return {one: content[: sizes.get(one, len(content))] for one, content in found.items()}


class StreamPair:
    """A primary, a replica, and the bytes on their way between them."""

    def __init__(
        self,
        settings: ReplicaSettings | None = None,
        disks: tuple[SimulatedDisk, SimulatedDisk] | None = None,
        data_paths: tuple[Path, Path] = (DATA, DATA),
    ) -> None:
        self.settings = settings or ReplicaSettings(replicas=1)
        self.now = WALL
        disk, other = disks or (SimulatedDisk(DATA), SimulatedDisk(DATA))
        self.data_paths = data_paths
        self.origin = Origin(disk, self.settings, data_paths[0])
        self.copies = Copies(other, data_paths[1])
        self.copies.scan()
        self.sender: Sender | None = None
        self.stream: LogStream | None = None
        self.end: ReplicaEnd | None = None
        # Jobs of the stream.
        self.reads = WaitingJobs()
        # Why the connection ended last.
        self.reason = ""
        # Deletions that the replica may not know.
        self.deletions: list[DeleteTopic] = []
        self.origin.deleted = self._deleted
        # Bytes on their way to the replica.
        self.out: list[bytes] = []

    @property
    def disk(self) -> SimulatedDisk:
        """The replica's disk."""
        return cast("SimulatedDisk", self.copies.disk)

    # --- the network ---

    def connect(self) -> None:
        self.cut()
        self.reason = ""
        self.sender = Sender(self.now, strict=self.settings.strict)
        for frame in self.deletions:
            self.sender.put(frame)
        numbers = count(1)
        self.stream = LogStream(
            *(self.origin.primary, b"r" * 16, self.sender, 1, 0),
            *(lambda: next(numbers), self.reads.start, self.now),
        )
        self.end = ReplicaEnd(self.copies)

    def _deleted(self, frame: DeleteTopic) -> None:
        self.deletions.append(frame)
        if self.sender is not None:
            self.sender.put(frame)

    def cut(self, keep: int = 0) -> None:
        """Cut the connection; the first *keep* bytes on their way still arrive."""
        if self.sender is not None and self.end is not None:
            self.out += self.sender.flush(self.now)
            self.end.receive(b"".join(self.out)[:keep])
        self._close("cut")

    def _close(self, reason: str) -> None:
        if self.stream is not None and self.sender is not None and self.end is not None:
            self.reason = self.stream.problem or reason
            self.sender.close()
            self.stream.close()
            self.end.close()
        self.out = []
        self.sender = self.stream = self.end = None

    def move(self) -> None:
        """Move bytes until neither side has anything to send."""
        for _ in range(1000):
            if not self.step():
                return
        raise AssertionError("they never stop")

    def step(self) -> bool:
        stream, sender, end = self.stream, self.sender, self.end
        if stream is None or sender is None or end is None:
            return False
        moved = self.work()
        self.out += sender.flush(self.now)
        data, self.out = b"".join(self.out), []
        if data:
            end.receive(data)
        moved = self.work() or moved
        answers = end.answers()
        for answer in answers:
            if isinstance(answer, Ack):
                sender.acknowledged(answer)
                sender.notify()
            elif isinstance(answer, Have):
                stream.take_have(answer)
            elif isinstance(answer, Ready):
                stream.take_ready(answer, self.now)
        sender.check_timeout(self.now, self.settings.timeout_ns)
        stream.catch_up(self.now)
        if end.refused is not None or stream.problem:
            self._close("" if end.refused is None else end.refused.sentence)
            return False
        return bool(data or answers or moved)

    def work(self) -> bool:
        assert self.end is not None
        reads = self.reads.take()
        for job in reads:
            job.ended(error_of(job, self.origin.disk), self.now)
        return self.end.work() or bool(reads)

    def settle(self, seconds: int = 6) -> None:
        """Let everything be copied, including checkpoints."""
        for _ in range(seconds):
            self.now += _S
            self.move()
            if self.end is not None:
                self.end.tick()
            self.origin.checkpoint()
        self.now += _S
        self.move()

    # --- faults ---

    def restart_origin(self, disk: SimulatedDisk) -> None:
        self.cut()
        self.origin = Origin(disk, self.settings, self.data_paths[0])
        self.origin.deleted = self._deleted

    def restart_replica(self, disk: SimulatedDisk) -> None:
        self.cut()
        self.copies = Copies(disk, self.data_paths[1])
        self.copies.scan()

    # --- what there is ---

    def in_sync(self, name: str = "t") -> bool:
        return self.stream is not None and self.stream.in_sync(self.origin.store(name))

    def record(self) -> LocalCopy:
        """The newest copy."""
        return max(records(self.copies), key=lambda one: one.number)

    def readable(self, name: str) -> set[int]:
        """The messages of a topic that a start would find in the copies, on a disk that is left as it is."""
        disk = self.disk.killed()
        found: set[int] = set()
        copies = Copies(disk, self.data_paths[1])
        for record in copies.scan():
            if name not in copies.topics(record):
                continue
            copies.finish_files(record)
            store = TopicLog(disk, copies.folder(record, name).path, SEGMENT, lambda _text: None)
            store.recover(CheckpointPosition())
            start = store.segments.end if store.segments.first_seq is None else store.segments.first_seq
            found |= read_all(store.segments.read, start, store.segments.end)[0].keys()
        return found

    def copied(self, name: str = "t", record: LocalCopy | None = None) -> dict[str, bytes]:
        return copied_files(self.disk, (record or self.record()).path / f"{name}.topic")


def copied_files(disk: SimulatedDisk, path: Path) -> dict[str, bytes]:
    """The files in a folder that are part of a copy."""
    try:
        names = disk.names(path)
    except FileNotFoundError:
        return {}
    return {one: disk.read_file(path / one) for one in names if is_copied_name(one)}
