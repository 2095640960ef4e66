"""The two checkpoints of a topic: the newest, and the one before it in case the newest cannot be used.

They are written in turn to two files, each with a serial number; of the complete ones the highest counts. The
newest durable one is never overwritten, so a power cut at any moment leaves one to start from. What was added
since a file's last turn is appended to it, until writing all again costs no more.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nsqd.engine.backlog import Backlog
from nsqd.engine.state import Additions, TopicState, owners, take_change
from nsqd.engine.topic import Topic
from nsqd.log.disk import Disk
from nsqd.log.gaps import EVERYTHING
from nsqd.log.tail_records import CheckpointPosition
from nsqd.storage import checkpoint
from nsqd.storage.checkpoint import BadCheckpoint, Sealed

NAMES: Final = ("checkpoint.0", "checkpoint.1")
# The wall clock was set if it moved by more than this against the steady one.
STEP_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Slot:
    """What the checkpoint in a file says; *durable* when a power cut cannot change that."""

    serial: int
    low_water: int
    notes: int
    durable: bool


@dataclass(slots=True)
class _Chain:
    """The records of a file that were written since the start, and the changes to add to them."""

    # Bytes of the whole record, and of all records.
    whole: int = 0
    size: int = 0
    # The exclusive ranges are listed in the file up to here.
    exclusive_end: int = 0
    added: dict[Backlog, Additions] = field(default_factory=dict)
    # The bytes of the journals in it.
    waiting: int = 0

    def can_append(self, spare: int) -> bool:
        """Whether, by what was added so far, one more record costs less than writing all again."""
        return self.size <= 2 * self.whole + spare

    def is_outgrown(self, spare: int) -> bool:
        """Whether the changes to add are larger than a whole record, as after many rounds that failed."""
        return self.waiting > self.whole + spare

    def add(self, pending: Backlog, change: Additions) -> None:
        self.added.setdefault(pending, Additions()).add(change)
        self.waiting += sum([journal.size for journal in change.journals])

    def retain(self, backlogs: Collection[Backlog]) -> None:
        """Forget the changes of all but *backlogs*, because the others were deleted."""
        if len(self.added) > len(backlogs):
            self.added = {backlog: self.added[backlog] for backlog in backlogs}


class CheckpointJob:
    """One checkpoint to be written: :meth:`run` in any thread, then :meth:`CheckpointSlots.end`."""

    def __init__(
        self,
        path: Path,
        encode: Callable[[], bytes],
        slot: _Slot,
        place: int,
        chain: _Chain,
        mark: CheckpointPosition,
    ) -> None:
        self.slot = slot
        self.place = place
        self.chain = chain
        self.mark = mark
        # The written bytes and their offset in the file; stored for replication.
        self.content = b""
        self.offset = chain.size
        # Bytes that were written.
        self.written = 0
        self._path = path
        self._encode = encode

    def run(self, disk: Disk) -> None:
        """Write the checkpoint. Raises OSError."""
        content = self.content = self._encode()
        self.written = len(content)
        if not self.chain.size:
            disk.replace(self._path, content, durable=self.slot.durable)
            if self.slot.durable:
                disk.sync_folder(self._path.parent)
            return
        fd = disk.open_write(self._path)
        try:
            disk.write_at(fd, content, self.chain.size)
            if self.slot.durable:
                disk.sync(fd)
        finally:
            disk.close(fd)


class CheckpointSlots:
    """Which checkpoints exist, and what both of them cover."""

    __slots__ = (
        *("_chains", "_disk", "_folder", "_offset_ns", "_slots"),
        *("chain_bytes", "damaged", "is_writing"),
    )

    def __init__(self, disk: Disk, folder: Path) -> None:
        # A file of few messages may grow by so many bytes before it is written whole again.
        self.chain_bytes = 64 << 10
        self._disk = disk
        self._folder = folder
        self._slots: list[_Slot | None] = [None, None]
        # None where the next record must be a whole one.
        self._chains: list[_Chain | None] = [None, None]
        # Of the wall clock, when the chains began.
        self._offset_ns = 0
        # Whether there was a checkpoint at start that could not be used.
        self.damaged = False
        # The last job has not ended, or has failed.
        self.is_writing = False

    def move_to(self, folder: Path) -> None:
        """The folder was renamed."""
        self._folder = folder

    def load(self, warn: Callable[[str], None], topic_name: str = "") -> TopicState | None:
        """The newest complete checkpoint; None when there is none. Raises OSError and NewerVersion.

        With *topic_name*, a checkpoint of another topic counts as damaged.
        """
        complete: list[tuple[Sealed, int]] = []
        for place, name in enumerate(NAMES):
            try:
                complete.append((Sealed(self._disk.read_file(self._folder / name), topic_name), place))
            except FileNotFoundError:
                continue
            except BadCheckpoint as error:
                self._refuse(name, error, warn)
        found: TopicState | None = None
        for sealed, place in sorted(complete, key=lambda one: -one[0].serial):
            try:
                found = found or sealed.state()
            except BadCheckpoint as error:
                self._refuse(NAMES[place], error, warn)
                continue
            # It is not known whether it ever reached the disk, so it covers nothing.
            if sealed.trailing_bytes:
                warn(f"{self._folder / NAMES[place]}: the last {sealed.trailing_bytes} bytes cannot be used")
            self._slots[place] = _Slot(sealed.serial, 0, 0, durable=False)
        return found

    def _refuse(self, name: str, error: BadCheckpoint, warn: Callable[[str], None]) -> None:
        self.damaged = True
        warn(f"cannot use {self._folder / name}: {error}")

    def start_job(self, topic: Topic, mark: CheckpointPosition, *, durable: bool = True) -> CheckpointJob:
        """The job that writes the checkpoint of a topic as it is now."""
        # A reader asks for what follows the position it committed, though its channel must deliver none of
        # it.
        asked = [channel.committed for channel in topic.channels.values() if channel.committed]
        topic.exclusive.drop_below(topic.log.log_start, min(asked, default=EVERYTHING))
        offset_ns = topic.wall.offset_ns
        if abs(offset_ns - self._offset_ns) > STEP_NS:
            # The clock was set. Each record says by the clock of its moment when deferred messages are due.
            self.restart_chains()
            self._offset_ns = offset_ns
        everybody = owners(topic)
        for backlog, channel in everybody.items():
            change = take_change(backlog, channel)
            change.journals = [journal for journal in change.journals if journal.size]
            for one in self._chains:
                if one is not None:
                    one.add(backlog, change)
        for at, one in enumerate(self._chains):
            if one is not None:
                one.retain(everybody)
                if one.is_outgrown(self.chain_bytes):
                    # While checkpoints fail, the same file is tried each time, and this would only grow.
                    self._chains[at] = None
        serials = [slot.serial if slot else -1 for slot in self._slots]
        newest_durable = max((slot.serial for slot in self._slots if slot and slot.durable), default=-1)
        place = serials.index(min(serials))
        if newest_durable >= 0 and serials[place] == newest_durable:
            place = 1 - place
        slot = _Slot(max(0, *serials) + 1, topic.low_water(), mark.notes, durable)
        chain = self._chains[place]
        if chain is None or not chain.can_append(self.chain_bytes):
            chain = _Chain()
            encode = checkpoint.encoder(topic, slot.serial, mark)
        else:
            encode = checkpoint.encoder(topic, slot.serial, mark, chain.added, chain.exclusive_end)
        chain.exclusive_end = topic.exclusive.end
        # Until the checkpoint is written, the content of that file is unknown.
        self._slots[place] = self._chains[place] = None
        self.is_writing = True
        return CheckpointJob(self._folder / NAMES[place], encode, slot, place, chain, mark)

    def end(self, job: CheckpointJob) -> None:
        """*job* has run without an error."""
        self.is_writing = False
        chain = job.chain
        whole = chain.whole if chain.size else job.written
        self._slots[job.place] = job.slot
        self._chains[job.place] = _Chain(whole, chain.size + job.written, chain.exclusive_end)

    def restart_chains(self) -> None:
        """Write the next records whole, because a replica lacks the records that they would continue."""
        self._chains = [None, None]

    @property
    def covered_low_water(self) -> int:
        """No channel must deliver anything below this sequence, whichever of the two checkpoints is used."""
        return min(slot.low_water if slot and slot.durable else 0 for slot in self._slots)

    @property
    def covered_notes(self) -> int:
        """Both checkpoints know of the notes up to this number."""
        return min(slot.notes if slot and slot.durable else 0 for slot in self._slots)
