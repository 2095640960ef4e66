"""One topic's folder, which tests open repeatedly, as restarts do, and read completely."""

from collections.abc import Callable
from pathlib import Path

from nsqd.log.compaction import Compaction
from nsqd.log.disk import Disk
from nsqd.log.encoder import Batch, Encoder
from nsqd.log.frames import FRAME_OVERHEAD, Block
from nsqd.log.gaps import Gap
from nsqd.log.ids import MessageIds
from nsqd.log.layout import FILE_HEADER_BYTES, Append, decode_append, decode_file_header
from nsqd.log.ranges import RangeSet
from nsqd.log.retention import WantedPositions
from nsqd.log.segment_files import FoundSegments
from nsqd.log.segment_writer import SyncJob
from nsqd.log.tail_records import CheckpointPosition, RecoveredMessages, RecoveredNote
from nsqd.storage.topic_log import TopicLog

FIRST = 1000
NODE_ID = 1


class Shop:
    """A store, its warnings, and an encoder that continues where the last one ended."""

    store: TopicLog
    found: FoundSegments
    # The size of a full segment. A quarter of it is the waste that is worth a copy.
    segment_bytes = 1 << 20

    def __init__(self, data_path: Path) -> None:
        self.folder = data_path / "t.topic"
        self.warnings: list[str] = []
        self.encoder = Encoder(MessageIds(NODE_ID), FIRST)

    def new(self, disk: Disk | None = None, *, segment: int = 0) -> TopicLog:
        """Create the store of a new topic."""
        self.store = TopicLog(
            disk or Disk(), self.folder, segment or self.segment_bytes, self.warnings.append, origin=NODE_ID
        )
        return self.store

    def reopen(
        self, mark: CheckpointPosition | None = None, disk: Disk | None = None, *, segment: int = 0
    ) -> FoundSegments:
        """Forget the store and recover what is on disk."""
        self.store.appender.close()
        self.new(disk, segment=segment)
        self.found = self.store.recover(mark or CheckpointPosition())
        self.encoder.skip_to(max(self.encoder.next_seq, self.store.segments.end))
        return self.found

    def publish(self, *bodies: bytes, notes: tuple[bytes, ...] = ()) -> Block:
        """Append one block."""
        block = self.encoder.batch(Batch(list(bodies)), 1)
        self.store.appender.append([block], list(notes), block.first)
        return block

    def note(self, *notes: bytes) -> None:
        self.store.appender.append([], list(notes), self.encoder.next_seq)

    def sync(self) -> OSError | None:
        """Sync as the server does; the error if that failed."""
        job = self.store.appender.begin_sync()
        return None if job is None else finish(self.store, job)

    def drop(self, seq: int, notes: int) -> int:
        """Drop segments below *seq* and remove their files; return their number."""
        dropped = self.store.cleaner.drop_below(seq, notes)
        self.store.cleaner.remove_files()
        return dropped

    def begin_compaction(self, *pending: tuple[int, int]) -> Compaction:
        """A compaction to the *pending* messages."""
        return self.store.cleaner.begin_compaction(wanting(*pending), self.store.checkpoints.covered_notes)

    def compact(self, *pending: tuple[int, int]) -> int:
        """Compact as the server does; returns the bytes saved."""
        job = self.begin_compaction(*pending)
        job.run()
        saved = self.store.cleaner.end_compaction(job)
        self.store.cleaner.remove_files()
        return saved

    def mark(self) -> CheckpointPosition:
        return self.store.checkpoint_position(self.store.segments.end)

    def bodies(self) -> dict[int, bytes]:
        """Return every message that can be read."""
        return read_all(self.store.segments.read, FIRST, self.encoder.next_seq)[0]

    def gaps(self) -> list[Gap]:
        """Return every gap."""
        return read_all(self.store.segments.read, FIRST, self.encoder.next_seq)[1]

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def log(self, number: int) -> Path:
        return self.folder / f"{number:08}.log"


def deferred(encoder: Encoder, *bodies: bytes, due_ns: int = 99) -> Block:
    """Return a block of messages that are deferred together."""
    encoder.due_ns = due_ns
    for body in bodies:
        encoder.put(body, 1)
    block = encoder.close()
    assert block is not None
    return block


def wanting(*ranges: tuple[int, int]) -> WantedPositions:
    """Return positions of which only these ranges are wanted."""
    finished = RangeSet()
    end = 0
    for start, behind in sorted(ranges):
        finished.add(end, start)
        end = behind
    return WantedPositions([(finished, end)])


def finish(store: TopicLog, job: SyncJob, disk: Disk | None = None) -> OSError | None:
    """Run a sync and end it; return the error if it failed."""
    found: OSError | None = None
    try:
        job.run(disk or store.segments.disk)
    except OSError as error:
        found = error
    store.appender.end_sync(job, found)
    return found


def read_all(
    read: Callable[[int], Block | Gap | None], seq: int, end: int
) -> tuple[dict[int, bytes], list[Gap]]:
    """Return the bodies and the gaps in ``seq <= sequence < end``; assert that each read advances."""
    bodies: dict[int, bytes] = {}
    gaps: list[Gap] = []
    while seq < end:
        found = read(seq)
        if found is None:
            break
        if isinstance(found, Gap):
            assert found.start <= seq < found.end
            gaps.append(found)
            seq = found.end
        else:
            assert found.first <= seq < found.next
            for each in range(seq, found.next):
                bodies[each] = found.frames(each, each + 1)[FRAME_OVERHEAD:]
            seq = found.next
    return bodies, gaps


def stored(found: FoundSegments) -> list[tuple[int, int, int]]:
    """Return (first, next, due) of the blocks after the checkpoint."""
    return [
        (one.first, one.next, one.due_ns) for one in found.tail_records if isinstance(one, RecoveredMessages)
    ]


def noted(found: FoundSegments) -> list[tuple[int, bytes]]:
    return [(one.number, one.content) for one in found.tail_records if isinstance(one, RecoveredNote)]


def flip(path: Path, bit: int) -> None:
    """Flip one bit of a file."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def appends_of(log: Path) -> list[tuple[int, Append]]:
    """Return each append of messages in the file, with the offset of its header."""
    content = log.read_bytes()
    salt = decode_file_header(content).salt
    at, found = FILE_HEADER_BYTES, []
    while at < len(content):
        append = decode_append(content, at, 0, salt)
        if not append.is_note:
            found.append((at, append))
        at = append.end
    return found


def zero(path: Path, start: int, end: int) -> None:
    """Overwrite bytes with zeros, as a power cut leaves bytes that never reached the disk."""
    content = bytearray(path.read_bytes())
    end = min(end, len(content))
    content[start:end] = bytes(end - start)
    path.write_bytes(content)
