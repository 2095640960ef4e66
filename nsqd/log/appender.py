"""Appending to the newest segment of a log, and making the appended segments durable."""

import errno
from pathlib import Path

from nsqd.log import segment_index
from nsqd.log.disk import error_text
from nsqd.log.frames import Block
from nsqd.log.layout import FileHeader
from nsqd.log.open_files import OpenFiles
from nsqd.log.segment import Segment, SegmentState
from nsqd.log.segment_writer import OPENING_ERRORS, SegmentWriter, Syncing, SyncJob, new_log_id, new_salt
from nsqd.log.segments import Segments


class Appender:
    """Writes blocks and notes. Not thread-safe, except for the jobs it hands out."""

    __slots__ = (
        "_folder_exists",
        "_max_segment_bytes",
        "_open_files",
        "_origin",
        "_segments",
        "_syncing",
        "_writer",
        "failed",
        "log_id",
        "next_number",
        "unsynced",
    )

    def __init__(
        self, segments: Segments, max_segment_bytes: int, open_files: OpenFiles, origin: int
    ) -> None:
        """*max_segment_bytes* is in bytes; *open_files* are those of the node, *origin* is its id."""
        # Messages and notes appended since the last sync was begun.
        self.unsynced = 0
        # The error of the sync that failed: no appends until a restart. Empty while appends work.
        self.failed = ""
        # Every file header has it, see `FileHeader.log_id`.
        self.log_id = new_log_id()
        # The number of the next segment.
        self.next_number = 1
        self._segments = segments
        self._max_segment_bytes = max_segment_bytes
        self._open_files = open_files
        self._origin = origin
        # The writer of the one segment that is open, if there is one.
        self._writer: SegmentWriter | None = None
        self._syncing = Syncing()
        self._folder_exists = False

    # --- writing ---

    def append(self, blocks: list[Block], notes: list[bytes], next_seq: int) -> None:
        """Write notes, then blocks, to the newest segment.

        *next_seq* is the next sequence of the topic. Raises OSError; then nothing of this counts as stored.
        """
        writer = self._writer
        if writer is None or writer.segment.size >= self._max_segment_bytes or not writer.is_open:
            writer = self._writable(blocks[0].first if blocks else next_seq)
        self._open_files.touch(self)
        segments = self._segments
        numbered = list(enumerate(notes, segments.notes + 1)) if notes else []
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
            segments.notes += len(notes)
            self.unsynced += len(notes)
        if blocks:
            self.unsynced += blocks[-1].next - blocks[0].first
            segments.end = blocks[-1].next
        if segments.tap is not None:
            segments.tap.appended(segment, offset, pieces)

    def _writable(self, first: int) -> SegmentWriter:
        """The writer of the newest segment, its file open; a new one begins at *first*. Raises OSError."""
        writer = self._writer
        if writer is not None and writer.segment.size >= self._max_segment_bytes:
            self.seal()
            writer = None
        if writer is not None and not writer.is_open:
            writer = self._reopened(writer)
        return self._begin_segment(first) if writer is None else writer

    def _reopened(self, writer: SegmentWriter) -> SegmentWriter | None:
        """*writer* with its file open; None if the file was removed or cut. Raises OSError."""
        self._open_files.evict()
        if writer.reopen():
            return writer
        self._segments.warn(
            f"{writer.segment.path} was removed or changed: the log continues in another file"
        )
        self.seal()
        # If part of it is not durable, the next sync fails and reports that.
        self._syncing.take_durable()
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
        segments = self._segments
        if self.failed:
            raise OSError(errno.EIO, self.failed, str(segments.folder))
        if segments.deleted:
            raise OSError(errno.ENOENT, "the topic was deleted", str(segments.folder))
        if segments.read_only:
            raise OSError(errno.EROFS, "the log of another nsqd is not written to", str(segments.folder))
        self.make_folder()
        header = FileHeader(first, segments.end, new_salt(self.log_id), self._origin, segments.notes)
        segment = Segment(segments.folder, self.next_number, header)
        self._open_files.evict()
        self._writer = SegmentWriter(segments.disk, segment, keep=segments.cache.starts.put)
        self.next_number += 1
        segments.add(segment)
        self._syncing.new_names = True
        return self._writer

    def make_folder(self) -> None:
        """Make the topic's folder, unless that was done before. Raises OSError."""
        if not self._folder_exists:
            disk, folder = self._segments.disk, self._segments.folder
            try:
                disk.make_folder(folder)
            except FileExistsError:
                # Files of an unknown topic must not become part of this log.
                if disk.names(folder):
                    raise
            self._folder_exists = True
            self._syncing.new_names = True

    def seal(self) -> None:
        """End the newest segment, so that the next append begins another."""
        writer = self._writer
        if writer is not None:
            if not self._segments.deleted:
                writer.end_page()
            writer.segment.become(SegmentState.SEALED)
            self._syncing.sealed.append(writer)
            self._writer = None
            self._open_files.forget(self)

    def end_segment(self) -> None:
        """Like :meth:`seal`, for a log without appends: closes the file now if all of it is durable."""
        self.seal()
        self._end(self._syncing.take_durable())

    def _end(self, durable: list[SegmentWriter]) -> None:
        """Close files that are complete and durable."""
        for writer in durable:
            self._close(writer)
            self._index(writer.segment)

    def _remove_empty(self, segment: Segment) -> None:
        """Remove the newest segment, in which nothing was stored; the cleaner does if that fails."""
        self.remove([segment])
        try:
            self._segments.disk.remove(segment.path)
        except OSError:
            # Publishers get the error that led here.
            self._segments.removable.append(segment)

    def _close(self, writer: SegmentWriter) -> None:
        try:
            writer.close()
        except OSError as error:
            self._segments.warn(f"closing {writer.segment.path} failed: {error}")

    # --- syncing ---

    @property
    def is_new(self) -> bool:
        """Whether the folder's own name has not been synced since the start."""
        return self._syncing.folder_is_new

    def begin_sync(self) -> SyncJob | None:
        """A job that makes all appends so far durable; None when all are. Only one job runs at a time."""
        syncing = self._syncing
        if syncing.running is not None or self._segments.deleted or not (self.unsynced or syncing.sealed):
            return None
        job = syncing.begin(self._segments.folder, self._writer)
        job.unsynced, self.unsynced = self.unsynced, 0
        return job

    def end_sync(self, job: SyncJob, error: OSError | None) -> None:
        """*job* has succeeded, or failed with *error*.

        After one of `OPENING_ERRORS` the next job includes all of its files that still exist. After any other
        error nothing is appended until a restart. The kernel may have dropped the unwritten data, and another
        sync would succeed without it.
        """
        if error is None:
            self._end(self._syncing.worked(job))
            if not self.unsynced:
                self._open_files.synced(self)
        elif isinstance(error, OPENING_ERRORS):
            self._syncing.repeat(job)
            self.unsynced += job.unsynced
        else:
            self._syncing.sealed += job.sealed
            self.fail(error)
        self._close_removed()

    def fail(self, error: OSError) -> None:
        """Append nothing more until a restart, because a sync failed with *error*."""
        self.failed = f"no publishes until a restart: an fsync failed - {error_text(error)}"
        self.seal()
        self.unsynced = 0
        self._syncing.running = None
        sealed, self._syncing.sealed = self._syncing.sealed, []
        for writer in sealed:
            self._close(writer)

    def _index(self, segment: Segment) -> None:
        try:
            if segment in self._segments:
                segment_index.write(self._segments.disk, segment)
        except OSError as error:
            # The index only saves time at the next start.
            self._segments.warn(f"cannot write {segment.index_path}: {error}")

    # --- segments that are removed ---

    def remove(self, segments: list[Segment]) -> None:
        """Remove *segments* from the log: they are no longer appended to or synced."""
        writer = self._writer
        if writer is not None and writer.segment in segments:
            # Sealing adds to the cache, so it comes before the cache forgets the segment.
            self.seal()
        self._segments.remove(segments)
        self._close_removed()

    def _close_removed(self) -> None:
        """Close the sealed files of removed segments. A file in a running sync is closed after that sync."""
        syncing = self._syncing
        for writer in [one for one in syncing.sealed if one.segment not in self._segments]:
            if not syncing.uses(writer):
                syncing.sealed.remove(writer)
                self._close(writer)

    def reopen_if_removed(self) -> None:
        """Continue in another file if the newest was removed. Raises OSError."""
        writer = self._writer
        if (
            writer is not None
            and writer.is_open
            and not self._syncing.uses(writer)
            and not self._segments.disk.has_name(writer.fd)
        ):
            self._segments.warn(f"{writer.segment.path} was removed: the log continues in another file")
            self.seal()
            self._close(writer)
            self._lose([writer.segment])
            if not writer.segment.is_durable:
                # The next sync fails and reports it.
                self._syncing.sealed.append(writer)

    def check_folder(self) -> bool:
        """False if the folder was removed: then the log starts again in a new folder. Raises OSError."""
        segments = self._segments
        if self._syncing.running is not None or segments.deleted:
            return True
        try:
            segments.disk.names(segments.folder)
        except FileNotFoundError:
            segments.warn(f"{segments.folder} was removed: the log begins again in a new folder")
            segments.removable.clear()
            self._lose(list(segments))
            self._folder_exists = False
            self._syncing.folder_is_new = True
            self.unsynced = 0
            return False
        return True

    def _lose(self, lost: list[Segment]) -> None:
        self.remove(lost)
        if self._segments.tap is not None:
            self._segments.tap.lost()

    # --- start and end ---

    def resume(self, next_number: int) -> None:
        """Continue a log whose segments a start has found; *next_number* is that of its next segment."""
        self._folder_exists = True
        self.next_number = next_number
        if self._segments:
            self.log_id = self._segments[-1].header.log_id

    def move_away(self, name: str) -> Path | None:
        """Rename the folder to *name* permanently; returns the folder to remove, if any.

        Raises OSError; then nothing has changed. No thread may be writing into the folder, because its old
        name may soon be that of another log's folder. The caller syncs the folder above.
        """
        segments = self._segments
        moved = None
        if self._folder_exists:
            moved = segments.folder.with_name(name)
            segments.disk.rename(segments.folder, moved)
        segments.deleted = True
        self.unsynced = 0
        if segments.tap is not None:
            segments.tap.deleted()
            segments.tap = None
        self.remove(list(segments))
        segments.removable.clear()
        return moved

    def close(self) -> None:
        """Close all files that no sync is using."""
        self.seal()
        for segment in self._segments:
            self._segments.cache.forget(segment)
        for writer in list(self._syncing.sealed):
            if not self._syncing.uses(writer):
                self._syncing.sealed.remove(writer)
                self._close(writer)
