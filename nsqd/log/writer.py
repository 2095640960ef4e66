"""Writing a log: the appends to its newest segment, syncing, and letting go of the oldest."""

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from nsqd.log import segment_index
from nsqd.log.cache import Cache
from nsqd.log.compaction import WORTH_BYTES, Compaction, Sizes
from nsqd.log.disk import Disk
from nsqd.log.finding import Found, find_segments
from nsqd.log.frames import Block
from nsqd.log.happened import Mark
from nsqd.log.layout import FILE_HEADER_BYTES, FileHeader
from nsqd.log.open_files import OpenFiles
from nsqd.log.ranges import Ranges, within
from nsqd.log.retention import is_enough, knows_notes
from nsqd.log.segment import Segment, SegmentWriter, new_salt
from nsqd.log.segments import StoredLog

# An active segment whose messages are all acknowledged is given up from this size on.
_DROP_ACTIVE_BYTES: Final = 1 << 20


class SyncJob:
    """One fsync of a store: :meth:`run` in any thread, then :meth:`LogWriter.end_sync` in the loop."""

    def __init__(self, store: "LogWriter", sealed: list[SegmentWriter], active: SegmentWriter | None) -> None:
        self.store = store
        self.sealed = sealed
        self.active = active
        self.new_names = False
        # The folder itself is new: its name is to be made durable, with the folder above.
        self.new_folder = False
        # A sync that failed while this job's messages were appended to one of its files, which nobody syncs
        # again: whoever waits for this job is told of it.
        self.failed_before: OSError | None = None
        # How large the newest file was when this was begun.
        self.active_bytes = active.segment.size if active else 0
        self.synced_to = [(writer.segment, writer.segment.next) for writer in (*sealed, active) if writer]

    def run(self, disk: Disk) -> None:
        """Raises OSError."""
        self.sync_files(disk)
        if self.new_folder:
            disk.sync_folder(self.store.folder.parent)

    def sync_files(self, disk: Disk) -> None:
        """All but the folder above, which many may share. Raises OSError."""
        for writer in (*self.sealed, self.active):
            if writer is not None:
                writer.sync()
        if self.new_names:
            disk.sync_folder(self.store.folder)


class LogWriter(StoredLog):
    """Appends blocks and notes, and finds blocks again. Not thread-safe but for the jobs it hands out."""

    __slots__ = (
        "_compaction",
        "_exists",
        "_failed_sync",
        "_max_segment_bytes",
        "_new_names",
        "_next_number",
        "_open_files",
        "_origin",
        "_removable",
        "_sealed",
        "_spoiled",
        "_syncing",
        "_worth_compacting",
        "_writer",
        "deleted",
        "is_new",
        "notes",
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
        cache: Cache | None = None,
        open_files: OpenFiles | None = None,
    ) -> None:
        """*warn* is told in one sentence of what was found damaged; sizes in bytes; *origin* is a node id."""
        super().__init__(disk, folder, warn, cache)
        # How many notes were written so far.
        self.notes = 0
        # Messages and notes appended since the last sync was begun.
        self.unsynced = 0
        # The topic was deleted; nothing of it is to be found by its name any more.
        self.deleted = False
        self._max_segment_bytes = max_segment_bytes
        self._origin = origin
        self._worth_compacting = worth_compacting
        # Those of the node.
        self._open_files = OpenFiles() if open_files is None else open_files
        self._writer: SegmentWriter | None = None
        self._exists = False
        self._next_number = 1
        # Files were created or removed, so the folder itself is to be synced.
        self._new_names = False
        # Nobody has made sure in this life that the folder's own name is on the disk.
        self.is_new = True
        # Segments that are closed to appends and not synced yet; their files stay open until they are.
        self._sealed: list[SegmentWriter] = []
        self._syncing: SyncJob | None = None
        # See :attr:`SyncJob.failed_before`.
        self._failed_sync: OSError | None = None
        # Segments that were let go of and whose files are there yet.
        self._removable: deque[Segment] = deque()
        # Numbers of segments that cannot be compacted: something that is owed of them cannot be read.
        self._spoiled: set[int] = set()
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
        if writer is not None and not writer.is_open:
            writer = self._reopened(writer)
        if writer is None:
            writer = self._begin_segment(blocks[0].first if blocks else next_seq)
        self._open_files.used(self)
        numbered = list(enumerate(notes, self.notes + 1)) if notes else []
        try:
            writer.append(blocks, numbered)
        except OSError:
            # What is in the file now is not known; the next append begins a new one.
            self.seal()
            if not writer.segment.pages:
                # On a full disk every attempt would leave an empty file behind.
                self._give_up(writer)
            raise
        self.notes += len(notes)
        self.unsynced += len(notes)
        if blocks:
            self.unsynced += blocks[-1].next - blocks[0].first
            self.end = blocks[-1].next

    def _reopened(self, writer: SegmentWriter) -> SegmentWriter | None:
        """The same with its file open; None when somebody has removed that, or cut it. Raises OSError."""
        self._open_files.make_room()
        if writer.reopen():
            return writer
        self._warn(f"{writer.segment.path} is not there as it was left: the log goes on in another file")
        self._writer = None
        return None

    def rest(self, *, synced_only: bool) -> bool:
        """Close the file that is appended to until something is appended; False when it is used just now."""
        writer = self._writer
        if writer is None:
            return True
        if self._in_use(writer) or (synced_only and self.unsynced):
            return False
        self._close(writer)
        return True

    def _begin_segment(self, first: int) -> SegmentWriter:
        if self.deleted:
            raise OSError(2, "the topic was deleted", str(self.folder))
        self.make_folder()
        number = self._next_number
        header = FileHeader(first, self.end, new_salt(), self._origin, self.notes)
        segment = Segment(self.folder, number, header)
        self._open_files.make_room()
        self._writer = SegmentWriter(self._disk, segment, keep=self._cache.keep_starts)
        self._next_number = number + 1
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
            if not self.deleted:
                self._writer.end_page()
            # Closed when it is synced: an open file can be synced even when no other can be opened.
            self._sealed.append(self._writer)
            self._writer = None
            self._open_files.forget(self)

    def _close(self, writer: SegmentWriter) -> None:
        try:
            writer.close()
        except OSError as error:
            self._warn(f"closing {writer.segment.path} failed: {error}")

    # --- syncing ---

    def begin_sync(self) -> SyncJob | None:
        """What makes all appends so far durable; None when all are. One at a time."""
        if self._syncing is not None or self.deleted or not (self.unsynced or self._sealed):
            return None
        job = SyncJob(self, self._sealed, self._writer)
        job.new_names, self._new_names = self._new_names, False
        job.failed_before, self._failed_sync = self._failed_sync, None
        job.new_folder, self.is_new = self.is_new, False
        self._sealed = []
        self.unsynced = 0
        self._syncing = job
        return job

    def begin_trial(self, next_seq: int) -> None:
        """Have something for the next sync to try, behind one that failed. Raises OSError."""
        if self._writer is None:
            self._begin_segment(next_seq)
        self.unsynced += 1

    def end_sync(self, job: SyncJob, error: OSError | None) -> OSError | None:
        """*job* has run, or failed: then nobody knows what of it is on the disk.

        Returns why those who waited for it cannot rely on the disk, if they cannot.
        """
        self._syncing = None
        if error is None:
            for segment, synced in job.synced_to:
                segment.synced = synced
        else:
            # The kernel may have dropped the pages: the file is given up, not synced again.
            self._new_names = self._new_names or job.new_names
            self.is_new = self.is_new or job.new_folder
            if job.active is not None and job.active.segment.size > job.active_bytes:
                self._failed_sync = error
            if self._writer is job.active:
                self.seal()
            if job.active is not None and job.active in self._sealed:
                if not job.active.segment.pages and self._segments[-1:] == [job.active.segment]:
                    # Made for a trial; every one that fails would leave an empty file behind.
                    self._give_up(job.active)
                else:
                    self._sealed.remove(job.active)
                    self._close(job.active)
        for writer in job.sealed:
            self._close(writer)
            if error is None:
                self._index(writer.segment)
        if self.deleted:
            self.close()
        return error or job.failed_before

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

    # --- what somebody else has removed ---

    def look_for_file(self) -> None:
        """Go on in another file if somebody has removed the newest. Raises OSError."""
        writer = self._writer
        if writer is None or not writer.is_open or self._in_use(writer) or self._disk.has_name(writer.fd):
            return
        self._warn(f"{writer.segment.path} was removed by somebody: the log goes on in another file")
        self.seal()
        self._sealed.remove(writer)
        self._close(writer)
        self._forget([writer.segment])

    def look_for_folder(self) -> bool:
        """Begin again in another folder if somebody has removed this one: then False. Raises OSError."""
        if self._syncing is not None or self.deleted:
            return True
        try:
            self._disk.names(self.folder)
        except FileNotFoundError:
            self._warn(f"{self.folder} was removed by somebody: the log begins again in a new folder")
            self.seal()
            for writer in self._sealed:
                self._close(writer)
            self._sealed = []
            self._removable.clear()
            self._forget(list(self._segments))
            self._exists = False
            self.is_new = True
            return False
        return True

    def _forget(self, segments: list[Segment]) -> None:
        for segment in segments:
            self._let_go(segment)
            place = self._segments.index(segment)
            del self._segments[place], self._firsts[place]

    # --- letting go ---

    def can_drop_below(self, seq: int, notes: int) -> bool:
        """Whether :meth:`drop_below` would find something to remove."""
        return next(self._droppable(seq, notes), None) is not None

    def kept_after_drop(self, seq: int, notes: int) -> int:
        """The sequence below which messages are gone after :meth:`drop_below`; 0 when none go."""
        kept_from = 0
        for segment in self._droppable(seq, notes):
            if segment.messages or segment.header.ends:
                kept_from = segment.next
        return kept_from

    def _droppable(self, seq: int, notes: int) -> Iterator[Segment]:
        """What may go as a whole, oldest first; what is kept for its notes holds up nothing behind it."""
        for segment in self._segments:
            if segment.next > seq:
                return
            active = self._writer is not None and segment is self._writer.segment
            if knows_notes(segment.last_note, notes) and (not active or segment.size >= _DROP_ACTIVE_BYTES):
                yield segment

    def drop_below(self, seq: int, notes: int) -> int:
        """Let go of segments that hold nothing at or after *seq*, nor a note after *notes*; returns how many.

        *notes* is up to where every checkpoint knows them. Their files go with :meth:`remove_files`.
        """
        dropped = list(self._droppable(seq, notes))
        for segment in dropped:
            if self._writer is not None and segment is self._writer.segment:
                self.seal()
            self._removable.append(segment)
            self._discard_sealed(segment)
        self._forget(dropped)
        return len(dropped)

    @property
    def has_removable(self) -> bool:
        """Whether there are files for :meth:`remove_files`."""
        return bool(self._removable)

    def remove_files(self) -> None:
        """Remove the files of what was let go of; takes long, for any thread, one at a time.

        Raises OSError for the first that cannot be removed; it is tried again, and the others are gone.
        """
        failed: list[Segment] = []
        first: OSError | None = None
        for _ in range(len(self._removable)):
            segment = self._removable.popleft()
            try:
                # The index first: without it the file is walked, but it is never taken for another's.
                segment.remove(self._disk)
            except OSError as error:
                first = first or error
                failed.append(segment)
        self._removable += failed
        if first is not None:
            raise first

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

    def begin_compaction(
        self,
        owed: Callable[[], Ranges],
        covered_notes: int,
        low_water: int = 0,
        *,
        resting: bool = True,
        spend: Callable[[int], None] = lambda _size: None,
    ) -> Compaction:
        """What makes the log smaller when it is run, if it can be.

        *owed* gives, sorted and merged, the ranges that anybody owes at this moment; it is called in that
        thread. Only segments that are closed at this moment count, so nothing published later is in them.
        Every checkpoint knows of the notes up to *covered_notes*. What ends at or before *low_water* goes as
        a whole soon. See `retention` for *resting*, `Compaction` for *spend*.
        """
        sizes = Sizes(self._max_segment_bytes, min(self._worth_compacting, self._max_segment_bytes // 4))
        closed = self._compactable(covered_notes, low_water)
        self._compaction = Compaction(
            self._disk, closed, owed, self._warn, sizes, resting=resting, spend=spend
        )
        return self._compaction

    def wants_compaction(self, covered_notes: int, low_water: int = 0, *, resting: bool = True) -> bool:
        """Whether a compaction is worth a look at what is owed."""
        closed = self._compactable(covered_notes, low_water).values()
        # A file of which nothing is left but its header cannot be made smaller.
        size = sum(one.size - FILE_HEADER_BYTES for one in closed)
        return is_enough(size, self._max_segment_bytes, resting=resting)

    def _compactable(self, covered_notes: int, low_water: int) -> dict[int, Segment]:
        """The segments that are closed and may be copied, by their place."""
        if self.deleted:
            return {}
        writers = [*self._sealed, *([self._writer] if self._writer else [])]
        if self._syncing is not None:
            writers += self._syncing.sealed
        still_open = {writer.segment.number for writer in writers}
        return {
            place: one
            for place, one in enumerate(self._segments)
            if one.next > low_water
            and one.number not in still_open
            and one.number not in self._spoiled
            and knows_notes(one.last_note, covered_notes)
        }

    def waits_for_notes(self, covered_notes: int, low_water: int) -> bool:
        """Whether a closed segment cannot be compacted because a checkpoint does not know its notes."""
        return any(
            low_water < one.next and not knows_notes(one.last_note, covered_notes)
            for one in self._segments
            if self._writer is None or one is not self._writer.segment
        )

    def claim(self) -> Ranges:
        """The same as :meth:`extents`, for somebody who is owed it from now on.

        No compaction that began before lets go of anything of it.
        """
        extents, compaction = self.extents(), self._compaction
        if compaction is None or compaction.give_up() or not set(compaction.old) <= set(self._segments):
            return extents
        first, end = compaction.old[0].first, compaction.old[-1].next
        return within(extents, 0, first) + compaction.kept + within(extents, end, self.end)

    def end_compaction(self, compaction: Compaction) -> int:
        """Use what a compaction made; returns how many bytes that saved. Raises OSError.

        The files it replaces go with :meth:`remove_files`.
        """
        self._compaction = None
        self._spoiled |= compaction.spoiled
        old, new = compaction.old, compaction.new
        if new is None:
            return 0
        if self.deleted:
            return 0
        here = [one for one in old if one in self._segments]
        if not here:
            # Dropped meanwhile: then nobody needs the copy either.
            self._removable.append(new)
            return 0
        at = self._segments.index(here[0])
        self._segments[at : at + len(here)] = [new]
        self._firsts[at : at + len(here)] = [new.first]
        for one in here:
            self._let_go(one)
        self._removable += [one for one in here if one in compaction.replaced]
        return sum(one.size for one in here) - new.size

    # --- the end ---

    def close(self) -> None:
        """Close all files that no sync is using."""
        self.seal()
        for segment in self._segments:
            self._cache.forget(segment)
        for writer in self._sealed:
            if not self._in_use(writer):
                self._close(writer)
        self._sealed = [writer for writer in self._sealed if self._in_use(writer)]

    def move_away(self, name: str) -> Path | None:
        """Give the folder another *name*, for good; returns what is to be removed, if anything.

        Raises OSError; then nothing has changed. No thread may be writing into the folder: its name may soon
        be that of another log's. The caller syncs the folder above.
        """
        deleted = None
        if self._exists:
            deleted = self.folder.with_name(name)
            self._disk.rename(self.folder, deleted)
        self.deleted = True
        self.unsynced = 0
        for segment in self._segments:
            self._let_go(segment)
        self._segments.clear()
        self._firsts.clear()
        self._removable.clear()
        if self._syncing is None:
            self.close()
        return deleted

    # --- starting ---

    def recover(self, mark: Mark | None) -> Found:
        """Find the segments that are on disk, as a stop, a crash or a power cut left them.

        *mark* is what the checkpoint says; None when there is one that cannot be used. Raises OSError when
        something cannot be read or repaired.
        """
        found = find_segments(self._disk, self.folder, mark, self._warn)
        mark = mark or Mark()
        self._exists = True
        self._segments = found.segments
        self._firsts = [segment.first for segment in found.segments]
        self._next_number = found.next_number
        self.notes = max([mark.notes, *(segment.last_note for segment in found.segments)])
        self.end = max([mark.end, *(segment.next for segment in found.segments)])
        return found
