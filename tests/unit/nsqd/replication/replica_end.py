"""The replica's end of a connection without a socket, with the accounts that a connection keeps."""

from pathlib import Path

from xxhash import xxh3_64_intdigest

from nsqd.log.disk import Disk, error_text
from nsqd.replication.copies import Copies
from nsqd.replication.copy_file import Mismatch
from nsqd.replication.fields import BadFrame
from nsqd.replication.frames import (
    Ack,
    AnyFrame,
    Appends,
    DeleteTopic,
    FilePart,
    Log,
    Ready,
    Refuse,
    Snapshot,
    Topic,
)
from nsqd.replication.framing import MAX_APPEND, MAX_FRAME, FrameReader, encode
from nsqd.replication.incoming import IncomingLog
from nsqd.replication.job import Job
from nsqd.replication.local_copy import LocalCopy
from tests.support.jobs import WaitingJobs, error_of
from tests.support.simulated_disk import SimulatedDisk
from tests.support.stores import Shop

ORIGIN, REPLICA = b"o" * 16, b"r" * 16
DATA = Path("/data")
FIRST, SECOND = "00000001.log", "00000002.log"
LOG = Log(1, ORIGIN, 0, 0, 0, strict=False, holders=())


class ReplicaEnd:
    """One connection of a primary: its incoming log, and what was written and synced."""

    def __init__(self, copies: Copies, owner: bytes = ORIGIN) -> None:
        self.copies = copies
        self.owner = owner
        self.log: IncomingLog | None = None
        self.refused: Refuse | None = None
        self.out: list[AnyFrame] = []
        self._started = WaitingJobs()
        self._reader = FrameReader(MAX_APPEND + MAX_FRAME)
        self._position = 0
        self._deletions: list[DeleteTopic] = []
        self._acknowledged = (0, 0)

    @property
    def written(self) -> int:
        at = None if self.log is None else self.log.unwritten_from
        return self._position if at is None else at

    @property
    def synced(self) -> int:
        at = None if self.log is None else self.log.unsynced_from
        return self.written if at is None else min(at, self.written)

    def receive(self, data: bytes) -> None:
        """Take bytes of the primary."""
        if self.refused is not None:
            return
        try:
            for frame in self._reader.feed(data):
                self._take(frame)
                self._position = self._reader.position
        except (BadFrame, Mismatch, OSError) as error:
            self._refuse(error)

    def _take(self, frame: AnyFrame) -> None:
        if isinstance(frame, Log):
            candidate = self.candidate(frame.origin)
            self.log = IncomingLog(
                *(frame, self.owner, self.copies, candidate, self._started.start, 1), self._deletions
            )
        elif self.log is None and isinstance(frame, DeleteTopic):
            self._deletions.append(frame)
        else:
            assert self.log is not None
            self.log.take(frame, self._position)
            if isinstance(frame, Snapshot) and self.log.copy is not None:
                known_records(self.copies)[self.log.copy.number] = self.log.copy

    def candidate(self, origin: bytes) -> LocalCopy | None:
        """The newest replica of a log."""
        found = [one for one in records(self.copies) if one.origin == origin and not one.promoted]
        return max(found, key=lambda one: one.number, default=None)

    def _refuse(self, error: Exception) -> None:
        code = Refuse.DAMAGED if isinstance(error, Mismatch) else Refuse.BAD_FRAME
        sentence = str(error)
        if isinstance(error, OSError):
            code, sentence = Refuse.DISK, f"the replica's disk: {error_text(error)}"
        self.refused = Refuse(code, sentence)
        self.close()

    def close(self) -> None:
        if self.log is not None:
            self.log.close()

    def tick(self) -> None:
        """Sync, as once a second."""
        if self.log is not None and self.refused is None:
            self.log.sync()

    def jobs(self) -> list[Job]:
        if self.log is not None:
            self.log.begin_jobs()
        return self._started.take()

    def ended(self, job: Job, error: Exception | None) -> None:
        try:
            job.ended(error, 0)
        except (BadFrame, Mismatch, OSError) as failed:
            self._refuse(failed)

    def work(self) -> bool:
        """Run all jobs."""
        any_ran = False
        while jobs := self.jobs():
            any_ran = True
            for job in jobs:
                self.ended(job, error_of(job, self.copies.disk))
        return any_ran

    def answers(self) -> list[AnyFrame]:
        """The frames for the primary since the last call."""
        out: list[AnyFrame] = []
        if self.log is not None:
            out, self.log.out = self.log.out, []
        now = (self.written, self.synced)
        if self.refused is None and now != self._acknowledged:
            self._acknowledged = now
            out.append(Ack(*now))
        return out


def known_records(copies: Copies) -> dict[int, LocalCopy]:
    """The records of copies by number, as objects that a node would keep."""
    found: dict[int, LocalCopy] = copies.__dict__.setdefault("_of_test", {})
    return found


def records(copies: Copies) -> list[LocalCopy]:
    """The copies on disk, each once as an object."""
    known = known_records(copies)
    for record in Copies(copies.disk, copies.data_path).scan():
        known.setdefault(record.number, record)
    return [one for one in known.values() if not one.is_dropped]


class SentFrames:
    """A log's tap that records the appends as frames."""

    def __init__(self) -> None:
        self.frames: list[AnyFrame] = []

    def appended(self, segment, offset, pieces):
        self.frames.append(Appends(1, segment.path.name, offset, b"".join(pieces)))


class Shelf:
    """A replica on a disk, to which a test sends frames."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.disk = disk or SimulatedDisk(DATA)
        self.copies = Copies(self.disk, DATA)
        self.copies.scan()
        self.end = ReplicaEnd(self.copies)

    def connect(self) -> None:
        """Connect the primary again."""
        self.end.close()
        self.end = ReplicaEnd(self.copies)

    def send(self, *frames: AnyFrame) -> list[AnyFrame]:
        """Send frames, run the jobs, and return the answers."""
        self.end.receive(b"".join(map(encode, frames)))
        self.end.work()
        return self.end.answers()

    def begin_negotiation(self, *topics: str) -> list[AnyFrame]:
        """Send a log with topics from number 1 on; return the answers."""
        named = [Topic(1, number, name) for number, name in enumerate(topics or ("t",), 1)]
        found = self.send(LOG, *named, Ready(1, has_copy=False, others=0))
        return [one for one in found if not isinstance(one, Ack)]

    def begin(self, *topics: str, resume: bool | None = None) -> list[AnyFrame]:
        """Begin a stream, and return the answers; it enters an earlier copy if there is one."""
        found = self.begin_negotiation(*topics)
        (ready,) = [one for one in found if isinstance(one, Ready)]
        return found + self.send(Snapshot(1, ready.has_copy if resume is None else resume))

    @property
    def record(self) -> LocalCopy:
        assert self.end.log is not None
        record = self.end.log.copy
        assert record is not None
        return record

    def folder(self, topic: str = "t") -> Path:
        return self.record.path / f"{topic}.topic"

    def content(self, name: str, topic: str = "t") -> bytes:
        return self.disk.read_file(self.folder(topic) / name)

    def names(self, topic: str = "t") -> list[str]:
        return self.disk.names(self.folder(topic))

    @property
    def refused(self) -> Refuse:
        assert self.end.refused is not None
        return self.end.refused


def primary_file(shop: Shop, name: str = FIRST) -> bytes:
    return shop.store.segments.disk.read_file(shop.folder / name)


def part(name: str, offset: int, data: bytes) -> FilePart:
    return FilePart(1, name, offset, xxh3_64_intdigest(data), data)
