"""The log of one topic on disk: the appends to its newest segment, syncing, and letting go of the oldest.

A topic owns its store. A topic that is deleted and made again has another one, in a folder of its own.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

from nsqd.engine.block import Block
from nsqd.engine.owed import within
from nsqd.engine.topic import Topic
from nsqd.storage import segment_index
from nsqd.storage.checkpoint_slots import CheckpointSlots
from nsqd.storage.compaction import WORTH_BYTES, Compaction
from nsqd.storage.disk import Disk
from nsqd.storage.layout import FileHeader
from nsqd.storage.recovery import Mark
from nsqd.storage.segment import Segment, SegmentWriter, new_salt
from nsqd.storage.segments_on_disk import Found, find_segments
from nsqd.storage.stored_log import StoredLog

FOLDER_SUFFIX: Final = ".topic"
DELETED_SUFFIX: Final = ".deleted"
# An active segment whose messages are all acknowledged is given up from this size on.
_DROP_ACTIVE_BYTES: Final = 1 << 20


def topic_folder(data_path: Path, topic_name: str) -> Path:
    # The suffix keeps a topic called ".." inside the data path.
    return data_path / (topic_name + FOLDER_SUFFIX)


class SyncJob:
    """One fsync of a store: :meth:`run` in any thread, then :meth:`TopicStore.end_sync` in the loop."""

    def __init__(
        self, store: "TopicStore", sealed: list[SegmentWriter], active: SegmentWriter | None
    ) -> None:
        self.store = store
        self.sealed = sealed
        self.active = active
        self.new_names = False
        # Begun while an earlier sync ran that failed: it has to say so before it is called durable.
        self.detached: Segment | None = None
        self.synced_to = [(writer.segment, writer.segment.next) for writer in (*sealed, active) if writer]

    def run(self, disk: Disk) -> None:
        """Raises OSError."""
        if self.detached is not None:
            self.detached.stand_alone(disk)
        for writer in (*self.sealed, self.active):
            if writer is not None:
                disk.sync(writer.fd)
        if self.new_names:
            disk.sync_folder(self.store.folder)
            disk.sync_folder(self.store.folder.parent)


class TopicStore(StoredLog):
    """Appends blocks and notes, and finds blocks again. Not thread-safe but for the jobs it hands out."""

    __slots__ = (
        "_compaction",
        "_detached",
        "_exists",
        "_failed",
        "_max_segment_bytes",
        "_new_names",
        "_next_number",
        "_origin",
        "_sealed",
        "_syncing",
        "_worth_compacting",
        "_writer",
        "checkpoints",
        "notes",
        "retired",
        "unsynced",
    )

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        max_segment_bytes: int,
        warn: Callable[[str], None],
        *,
        origin: int = 0,
        worth_compacting: int = WORTH_BYTES,
    ) -> None:
        """*warn* is told in one sentence of what was found damaged; sizes in bytes; *origin* is a node id."""
        super().__init__(disk, folder, warn)
        self.checkpoints = CheckpointSlots(disk, folder)
        # How many notes were written so far.
        self.notes = 0
        # Messages and notes appended since the last sync was begun.
        self.unsynced = 0
        # The topic was deleted; nothing of it is to be found by its name any more.
        self.retired = False
        self._max_segment_bytes = max_segment_bytes
        self._origin = origin
        self._worth_compacting = worth_compacting
        self._writer: SegmentWriter | None = None
        self._exists = False
        # The newest segment could not be written or synced to its end, or is of an earlier life.
        self._failed = False
        self._next_number = 1
        # Files were created or removed, so the folder itself is to be synced.
        self._new_names = False
        # Segments that are closed to appends and not synced yet; their files stay open until they are.
        self._sealed: list[SegmentWriter] = []
        self._syncing: SyncJob | None = None
        # The segment behind those whose sync failed; see :class:`SyncJob`.
        self._detached: Segment | None = None
        # The last one that was begun, until it is used.
        self._compaction: Compaction | None = None

    # --- writing ---

    def append(self, blocks: list[Block], notes: list[bytes], next_seq: int) -> None:
        """Write notes, and behind them blocks, to the newest segment.

        *next_seq* is where the topic's sequence stands. Raises OSError; then nothing of it counts as stored.
        """
        writer = self._writer
        if writer is not None and writer.segment.size >= self._max_segment_bytes:
            self.seal()
            writer = None
        if writer is None:
            writer = self._begin_segment(blocks[0].first if blocks else next_seq)
        numbered = list(enumerate(notes, self.notes + 1)) if notes else []
        try:
            writer.append(blocks, numbered)
        except OSError:
            # What is in the file now is not known; the next append begins a new one.
            self.seal()
            self._failed = True
            if not writer.segment.pages:
                # On a full disk every attempt would leave an empty file behind.
                self._give_up(writer)
            raise
        self.notes += len(notes)
        self.unsynced += len(notes)
        if blocks:
            self.unsynced += blocks[-1].next - blocks[0].first
            self.end = blocks[-1].next

    def _begin_segment(self, first: int) -> SegmentWriter:
        if self.retired:
            raise OSError(2, "the topic was deleted", str(self.folder))
        self.make_folder()
        number = self._next_number
        header = FileHeader(first, self.end, new_salt(), self._origin, self.notes, after_failure=self._failed)
        segment = Segment(self.folder, number, header)
        self._writer = SegmentWriter(self._disk, segment)
        self._next_number = number + 1
        self._failed = False
        self._segments.append(segment)
        self._firsts.append(first)
        self._new_names = True
        return self._writer

    def make_folder(self) -> None:
        """Make the topic's folder, unless that was done before. Raises OSError."""
        if not self._exists:
            try:
                self._disk.make_folder(self.folder)
            except FileExistsError:
                # Nothing of a topic that is unknown to us is to become part of this one.
                if self._disk.names(self.folder):
                    raise
            self._exists = True
            self._new_names = True

    def _give_up(self, writer: SegmentWriter) -> None:
        """Remove a segment in which nothing was stored."""
        self._segments.remove(writer.segment)
        self._firsts.pop()
        self._sealed.remove(writer)
        self._close(writer)
        self._disk.remove(writer.segment.path)

    def seal(self) -> None:
        """Let the next append begin another segment."""
        if self._writer is not None:
            # Closed when it is synced: an open file can be synced even when no other can be opened.
            self._sealed.append(self._writer)
            self._writer = None

    def _close(self, writer: SegmentWriter) -> None:
        try:
            self._disk.close(writer.fd)
        except OSError as error:
            self._warn(f"closing {writer.segment.path} failed: {error}")

    # --- syncing ---

    def begin_sync(self) -> SyncJob | None:
        """What makes all appends so far durable; None when all are. One at a time."""
        if self._syncing is not None or self.retired or not (self.unsynced or self._sealed):
            return None
        job = SyncJob(self, self._sealed, self._writer)
        job.new_names, self._new_names = self._new_names, False
        if self._detached in self._segments:
            job.detached = self._detached
        self._detached = None
        self._sealed = []
        self.unsynced = 0
        self._syncing = job
        return job

    def end_sync(self, job: SyncJob, error: OSError | None) -> None:
        """*job* has run, or failed: then nobody knows what of it is on the disk."""
        self._syncing = None
        if error is None:
            for segment, synced in job.synced_to:
                segment.synced = synced
        else:
            # The kernel may have dropped the pages: the file is given up, not synced again.
            self._detach_behind(job)
            self._new_names = self._new_names or job.new_names
            if self._writer is job.active:
                self.seal()
            if job.active is not None and job.active in self._sealed:
                self._sealed.remove(job.active)
                self._close(job.active)
        for writer in job.sealed:
            self._close(writer)
            if error is None:
                self._index(writer.segment)
        if self.retired:
            self.close()

    def _detach_behind(self, job: SyncJob) -> None:
        """See to it that what comes behind the files of a failed sync does not go with them."""
        last = job.synced_to[-1][0] if job.synced_to else None
        behind = [one for one in self._segments if last is not None and one.number > last.number]
        if behind:
            self._detached = behind[0]
        else:
            self._failed = True

    def _index(self, segment: Segment) -> None:
        try:
            if segment in self._segments:
                segment_index.write(self._disk, segment)
        except OSError as error:
            # It would only have saved time at the next start.
            self._warn(f"cannot write {segment.index_path}: {error}")

    @property
    def synced(self) -> int:
        """Messages below this sequence are durable."""
        for segment in self._segments:
            if segment.synced < segment.next:
                return segment.synced
        return self.end

    def mark(self, next_seq: int) -> Mark:
        """What a checkpoint of this moment, which covers messages below *next_seq*, is to say of the log."""
        return Mark(next_seq, self.notes, self.synced, self.end)

    # --- letting go ---

    def can_drop_below(self, seq: int, notes: int) -> bool:
        """Whether :meth:`drop_below` would find something to remove."""
        return bool(self._segments) and self._droppable(self._segments[0], seq, notes)

    def kept_after_drop(self, seq: int, notes: int) -> int:
        """The sequence below which messages are gone after :meth:`drop_below`; 0 when none go."""
        kept_from = 0
        for segment in self._segments:
            if not self._droppable(segment, seq, notes):
                break
            if segment.messages or segment.header.ends:
                kept_from = segment.next
        return kept_from

    def _droppable(self, segment: Segment, seq: int, notes: int) -> bool:
        if segment.next > seq or segment.last_note > notes:
            return False
        active = self._writer is not None and segment is self._writer.segment
        return not active or segment.size >= _DROP_ACTIVE_BYTES

    def drop_below(self, seq: int, notes: int) -> int:
        """Remove segments that hold nothing at or after *seq*, nor a note after *notes*; returns how many."""
        dropped = 0
        while self._segments and self._droppable(self._segments[0], seq, notes):
            segment = self._segments[0]
            if self._writer is not None and segment is self._writer.segment:
                self.seal()
            # The index first: without it the file is walked, but it is never taken for another's.
            segment.remove(self._disk)
            del self._segments[0], self._firsts[0]
            self._discard_sealed(segment)
            dropped += 1
        return dropped

    def drop_unnoted(self, seq: int, notes: int) -> int:
        """Like :meth:`drop_below`, of what no checkpoint knows yet to be finished. Raises OSError.

        What is left must not be taken for what a power cut left behind a hole.
        """
        if not self.can_drop_below(seq, notes):
            return 0
        kept = next((one for one in self._segments if not self._droppable(one, seq, notes)), None)
        if kept is None:
            self._failed = True
        else:
            kept.stand_alone(self._disk)
            fd = self._disk.open_read(kept.path)
            try:
                self._disk.sync(fd)
            finally:
                self._disk.close(fd)
        return self.drop_below(seq, notes)

    def _discard_sealed(self, segment: Segment) -> None:
        for writer in [one for one in self._sealed if one.segment is segment and not self._in_use(one)]:
            self._sealed.remove(writer)
            self._close(writer)

    def _in_use(self, writer: SegmentWriter) -> bool:
        """Whether a thread is syncing the file: then it is closed when that is done."""
        return self._syncing is not None and (
            writer in self._syncing.sealed or writer is self._syncing.active
        )

    # --- compaction ---

    @property
    def has_closed_segments(self) -> bool:
        return len(self._segments) > (self._writer is not None)

    def begin_compaction(self, owed: Callable[[], list[tuple[int, int]]]) -> Compaction | None:
        """What makes the oldest sparse segment smaller when it is run; None if there is none.

        *owed* gives, sorted and merged, the ranges that anybody owes at this moment; it is called in that
        thread. Only segments that are closed at this moment count, so nothing published later is in them.
        """
        writers = [*self._sealed, *([self._writer] if self._writer else [])]
        if self._syncing is not None:
            writers += self._syncing.sealed
        still_open = [writer.segment for writer in writers]
        covered = self.checkpoints.covered_notes
        closed = [
            one
            for one in self._segments
            if one not in still_open and one.last_note <= covered and one.messages
        ]
        if not closed or self.retired:
            return None
        self._compaction = Compaction(self._disk, closed, owed, self._warn, self._worth_compacting)
        return self._compaction

    def claim(self) -> list[tuple[int, int]]:
        """The same as :meth:`extents`, for somebody who is owed it from now on.

        No compaction that began before lets go of anything of it.
        """
        extents, compaction = self.extents(), self._compaction
        if compaction is None or compaction.give_up() or compaction.old not in self._segments:
            return extents
        old = compaction.old
        return within(extents, 0, old.first) + compaction.kept + within(extents, old.next, self.end)

    def end_compaction(self, compaction: Compaction) -> int:
        """Use what a compaction made; returns how many bytes that saved. Raises OSError."""
        self._compaction = None
        old, new = compaction.old, compaction.new
        if old is None or new is None:
            return 0
        if self.retired or old not in self._segments:
            # Dropped or deleted meanwhile: then nobody needs the copy either.
            if not self.retired:
                new.remove(self._disk)
            return 0
        self._segments[self._segments.index(old)] = new
        self._cache.clear()
        old.remove(self._disk)
        return old.size - new.size

    # --- the end ---

    def close(self) -> None:
        """Close all files that no sync is using."""
        self.seal()
        for writer in self._sealed:
            if not self._in_use(writer):
                self._close(writer)
        self._sealed = [writer for writer in self._sealed if self._in_use(writer)]

    def retire(self) -> Path | None:
        """Take the topic's name off its folder; returns what is to be removed, if anything.

        Raises OSError; then nothing has changed. No thread may be writing into the folder: its name may soon
        be that of another topic's. The caller syncs the data path.
        """
        doomed = None
        if self._exists:
            doomed = self.folder.with_name(f"{self.folder.name}.{uuid4().hex[:12]}{DELETED_SUFFIX}")
            self._disk.rename(self.folder, doomed)
        self.retired = True
        self.unsynced = 0
        self._segments.clear()
        self._firsts.clear()
        self._cache.clear()
        if self._syncing is None:
            self.close()
        return doomed

    # --- starting ---

    def recover(self, mark: Mark | None, low_water: int = 0) -> Found:
        """Find the segments that are on disk, as a stop, a crash or a power cut left them.

        *mark* and *low_water* are what the checkpoint says; no mark when there is one that cannot be used.
        Raises OSError when something cannot be read or repaired.
        """
        found = find_segments(self._disk, self.folder, mark, low_water, self._warn)
        mark = mark or Mark()
        self._failed = True
        self._exists = True
        self._segments = found.segments
        self._firsts = [segment.first for segment in found.segments]
        self._next_number = found.next_number
        self.notes = max([mark.notes, *(segment.last_note for segment in found.segments)])
        self.end = max([mark.end, *(segment.next for segment in found.segments)])
        return found


def store_of(topic: Topic) -> TopicStore | None:
    """The topic's own store; None for an ephemeral topic, which has no disk."""
    return topic.source if isinstance(topic.source, TopicStore) else None
