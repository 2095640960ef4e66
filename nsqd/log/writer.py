"""Writing a log: appending to its newest segment, syncing, and what becomes of its files and its folder."""

from collections.abc import Callable
from pathlib import Path

from nsqd.log import segment_index
from nsqd.log.cache import Cache
from nsqd.log.compaction import WORTH_BYTES
from nsqd.log.disk import CannotOpen, Disk
from nsqd.log.finding import Found, find_segments
from nsqd.log.frames import Block
from nsqd.log.layout import FileHeader
from nsqd.log.open_files import OpenFiles
from nsqd.log.segment import Segment, SegmentState
from nsqd.log.segment_writer import SegmentWriter, new_log_id, new_salt
from nsqd.log.shrinking import ShrinkingLog
from nsqd.log.syncing import Syncing, SyncJob
from nsqd.log.tail_records import CheckpointPosition


class LogWriter(ShrinkingLog):
    """Appends blocks and notes, and finds blocks again. Not thread-safe, except for the jobs it hands out."""

    __slots__ = (
        "_exists",
        "_next_number",
        "_open_files",
        "_origin",
        "_syncing",
        "_writer",
        "doubt",
        "known_durable",
        "log_id",
        "notes",
        "sync_error",
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
        """*warn* is called with a sentence about each damage; sizes are in bytes; *origin* is a node id."""
        super().__init__(
            disk, folder, max_segment_bytes, warn, worth_compacting=worth_compacting, cache=cache
        )
        # How many notes were written so far.
        self.notes = 0
        # Messages and notes appended since the last sync was begun.
        self.unsynced = 0
        # Why the last sync failed, if it did.
        self.sync_error: OSError | None = None
        # Why notes may never be on the disk, until a checkpoint that was begun later is durable.
        self.doubt: OSError | None = None
        # What the checkpoint of the last life says. What it calls durable and is missing was removed.
        self.known_durable = CheckpointPosition()
        # All files say it, see `FileHeader.log_id`.
        self.log_id = new_log_id()
        self._origin = origin
        # The open files of the node.
        self._open_files = OpenFiles() if open_files is None else open_files
        # The writer of the one segment that is open, if there is one.
        self._writer: SegmentWriter | None = None
        self._syncing = Syncing()
        # Whether the folder was made or found.
        self._exists = False
        self._next_number = 1

    # --- writing ---

    def append(self, blocks: list[Block], notes: list[bytes], next_seq: int) -> None:
        """Write notes, then blocks, to the newest segment.

        *next_seq* is the next sequence of the topic. Raises OSError; then nothing of this counts as stored.
        """
        writer = self._writer
        if writer is None or writer.segment.size >= self._max_segment_bytes or not writer.is_open:
            writer = self._writable(blocks[0].first if blocks else next_seq)
        self._open_files.used(self)
        numbered = list(enumerate(notes, self.notes + 1)) if notes else []
        segment = writer.segment
        offset = segment.size if segment.page_offsets else 0
        try:
            pieces = writer.append(blocks, numbered)
        except OSError:
            if not writer.truncate():
                # The file ends with unknown bytes: the next append creates another file.
                self.seal()
                if not segment.pages:
                    # On a full disk every attempt would leave an empty file behind.
                    self._remove_empty(segment)
            raise
        if notes:
            self.notes += len(notes)
            self.unsynced += len(notes)
        if blocks:
            self.unsynced += blocks[-1].next - blocks[0].first
            self.end = blocks[-1].next
        if self.tap is not None:
            self.tap.appended(segment, offset, pieces)

    def _writable(self, first: int) -> SegmentWriter:
        """The writer to append with, its file open; another segment begins at *first*. Raises OSError."""
        writer = self._writer
        if writer is not None and writer.segment.size >= self._max_segment_bytes:
            self.seal()
            writer = None
        if writer is not None and not writer.is_open:
            writer = self._reopened(writer)
        return self._begin_segment(first) if writer is None else writer

    def _reopened(self, writer: SegmentWriter) -> SegmentWriter | None:
        """*writer* with its file open; None when somebody has removed or cut the file. Raises OSError."""
        self._open_files.make_room()
        if writer.reopen():
            return writer
        self._warn(f"{writer.segment.path} is not there as it was left: the log goes on in another file")
        self.seal()
        self._syncing.missed(writer)
        return None

    def close_file(self) -> bool:
        """Close the file that is appended to until the next append; False while it is being synced."""
        writer = self._writer
        if writer is None:
            return True
        if self._syncing.uses(writer):
            return False
        self._close(writer)
        return True

    def _begin_segment(self, first: int) -> SegmentWriter:
        if self.deleted:
            raise OSError(2, "the topic was deleted", str(self.folder))
        self.make_folder()
        number = self._next_number
        header = FileHeader(first, self.end, new_salt(self.log_id), self._origin, self.notes)
        segment = Segment(self.folder, number, header)
        self._open_files.make_room()
        self._writer = SegmentWriter(self._disk, segment, keep=self._cache.keep_starts)
        self._next_number = number + 1
        self._segments.append(segment)
        self._firsts.append(first)
        self._syncing.new_names = True
        return self._writer

    def make_folder(self) -> None:
        """Make the topic's folder, unless that was done before. Raises OSError."""
        if not self._exists:
            try:
                self._disk.make_folder(self.folder)
            except FileExistsError:
                # Files of a topic that is not known here must not become part of this one.
                if self._disk.names(self.folder):
                    raise
            self._exists = True
            self._syncing.new_names = True

    def seal(self) -> None:
        """End the newest segment, so that the next append begins another."""
        writer = self._writer
        if writer is not None:
            if not self.deleted:
                writer.end_page()
            writer.segment.become(SegmentState.SEALED)
            self._syncing.sealed.append(writer)
            self._writer = None
            self._open_files.forget(self)

    def end_segment(self) -> None:
        """Like :meth:`seal`, while nothing is appended: a file of which all is durable is closed at once."""
        self.seal()
        self._end(self._syncing.settle())

    def _end(self, durable: list[SegmentWriter]) -> None:
        """Close files that are complete and durable."""
        for writer in durable:
            self._close(writer)
            self._index(writer.segment)

    def _remove_empty(self, segment: Segment) -> None:
        """Remove the newest segment, in which nothing was stored; :meth:`remove_files` does if that fails."""
        self._forget([segment])
        try:
            self._disk.remove(segment.path)
        except OSError:
            # Whoever waits is told of the error that led here.
            self._removable.append(segment)

    def _close(self, writer: SegmentWriter) -> None:
        try:
            writer.close()
        except OSError as error:
            self._warn(f"closing {writer.segment.path} failed: {error}")

    # --- syncing ---

    @property
    def is_new(self) -> bool:
        """Whether the folder's own name has not been made durable yet in this life."""
        return self._syncing.folder_is_new

    def begin_sync(self) -> SyncJob | None:
        """A job that makes all appends so far durable; None when all are. Only one job runs at a time."""
        syncing = self._syncing
        if syncing.running is not None or self.deleted or not (self.unsynced or syncing.sealed):
            return None
        job = syncing.begin(self.folder, self._writer)
        job.unsynced, self.unsynced = self.unsynced, 0
        return job

    def begin_trial(self, next_seq: int) -> None:
        """After a sync that failed: give the next sync something to try. Raises OSError."""
        if self._writer is None:
            self._begin_segment(next_seq)
        self.unsynced += 1

    def end_sync(self, job: SyncJob, error: OSError | None) -> OSError | None:
        """*job* has succeeded, or failed with *error*.

        After CannotOpen, the next job includes all of it. After any other error, nobody knows what of it is
        on the disk.

        Returns the error because of which those who waited for it cannot rely on the disk, or None.
        """
        if error is None:
            self._end(self._syncing.worked(job))
            if not self.unsynced:
                self._open_files.synced(self)
        elif isinstance(error, CannotOpen):
            self._syncing.repeat(job)
            self.unsynced += job.unsynced
        else:
            if job.active is self._writer:
                self.seal()
            for writer in self._syncing.failed(job, error):
                if writer.segment.synced_notes < writer.segment.last_note:
                    self.doubt = error
                self._close(writer)
                if not writer.segment.pages and self._segments[-1:] == [writer.segment]:
                    # It was made for a trial; each trial that fails would leave an empty file behind.
                    self._remove_empty(writer.segment)
        # The file that was synced may have been removed meanwhile.
        for writer in [one for one in self._syncing.sealed if one.segment not in self._segments]:
            self._stop_writing(writer)
        self.sync_error = error or job.failed_before
        return self.sync_error

    def _index(self, segment: Segment) -> None:
        try:
            if segment in self._segments:
                segment_index.write(self._disk, segment)
        except OSError as error:
            # The index only saves time at the next start.
            self._warn(f"cannot write {segment.index_path}: {error}")

    @property
    def synced(self) -> int:
        """Messages below this sequence are durable."""
        for segment in self._segments:
            if segment.synced < segment.next:
                return segment.synced
        return self.end

    @property
    def synced_notes(self) -> int:
        """Notes up to this number are durable."""
        for segment in self._segments:
            if segment.synced_notes < segment.last_note:
                return segment.synced_notes
        return self.notes

    def mark(self, next_seq: int) -> CheckpointPosition:
        """What a checkpoint made now, which covers messages below *next_seq*, must say of the log."""
        return CheckpointPosition(next_seq, self.notes, self.synced, self.end, self.synced_notes)

    # --- what somebody else has removed ---

    def look_for_file(self) -> None:
        """Go on in another file if somebody has removed the newest. Raises OSError."""
        writer = self._writer
        if (
            writer is not None
            and writer.is_open
            and not self._syncing.uses(writer)
            and not self._disk.has_name(writer.fd)
        ):
            self._warn(f"{writer.segment.path} was removed by somebody: the log goes on in another file")
            self.seal()
            self._syncing.missed(writer)
            self._close(writer)
            self._lose([writer.segment])

    def look_for_folder(self) -> bool:
        """False if somebody removed the folder: then the log begins again in another one. Raises OSError."""
        if self._syncing.running is not None or self.deleted:
            return True
        try:
            self._disk.names(self.folder)
        except FileNotFoundError:
            self._warn(f"{self.folder} was removed by somebody: the log begins again in a new folder")
            self._removable.clear()
            self._lose(list(self._segments))
            self._exists = False
            self._syncing.folder_is_new = True
            return False
        return True

    def _lose(self, segments: list[Segment]) -> None:
        self._forget(segments)
        if self.tap is not None:
            self.tap.lost()

    # --- the end ---

    def close(self) -> None:
        """Close all files that no sync is using."""
        self.seal()
        for segment in self._segments:
            self._cache.forget(segment)
        for writer in list(self._syncing.sealed):
            self._stop_writing(writer)

    def _evict(self, segment: Segment) -> None:
        if self._writer is not None and self._writer.segment is segment:
            # Sealing adds to the cache, so it comes before the cache forgets the segment.
            self.seal()
        super()._evict(segment)
        for writer in [one for one in self._syncing.sealed if one.segment is segment]:
            self._stop_writing(writer)

    def _stop_writing(self, writer: SegmentWriter) -> None:
        """Close a sealed file that need not be synced; one that a sync is using is closed when that ends."""
        if not self._syncing.uses(writer):
            self._syncing.sealed.remove(writer)
            self._close(writer)

    def move_away(self, name: str) -> Path | None:
        """Rename the folder to *name* permanently; returns the folder that is to be removed, if there is one.

        Raises OSError; then nothing has changed. No thread may be writing into the folder, because its old
        name may soon be that of another log's folder. The caller syncs the folder above.
        """
        deleted = None
        if self._exists:
            deleted = self.folder.with_name(name)
            self._disk.rename(self.folder, deleted)
        self.deleted = True
        self.unsynced = 0
        if self.tap is not None:
            self.tap.deleted()
            self.tap = None
        self._forget(list(self._segments))
        self._removable.clear()
        return deleted

    # --- starting ---

    def recover(self, mark: CheckpointPosition | None) -> Found:
        """Find the segments that are on disk, as a stop, a crash or a power cut left them.

        *mark* is what the checkpoint says; None when there is one that cannot be used. Raises OSError when
        something cannot be read or repaired.
        """
        found = find_segments(self._disk, self.folder, mark, self._warn)
        mark = mark or CheckpointPosition()
        self.known_durable = mark
        self._exists = True
        self._segments = found.segments
        self._firsts = [segment.first for segment in found.segments]
        self._next_number = found.next_number
        if found.segments:
            self.log_id = found.segments[-1].header.log_id
        self.notes = max([mark.notes, *(segment.last_note for segment in found.segments)])
        self.end = max([mark.end, *(segment.next for segment in found.segments)])
        return found
