"""Writing segments: appending to a file, which may be closed in between, and making files durable.

After a failed sync nothing is appended to the log until a restart: see `Appender.end_sync`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nsqd.log.disk import CannotOpen, Disk, opening_to_sync
from nsqd.log.frames import Block, published_ns
from nsqd.log.layout import (
    APPEND_HEADER_BYTES,
    FILE_HEADER_BYTES,
    LOG_ID_SHIFT,
    MESSAGE_HEADERS,
    NOTE,
    append_header,
)
from nsqd.log.segment import Segment, SegmentState
from nsqd.log.starts import Starts

# In place of a descriptor while the file is closed.
_CLOSED: Final = -1


def new_log_id() -> int:
    """A random number of 32 bits; 0 stands for an unknown one."""
    return int.from_bytes(os.urandom(4), "little") or 1


def new_salt(log_id: int) -> int:
    """The salt of another file of this log."""
    return log_id << LOG_ID_SHIFT | int.from_bytes(os.urandom(4), "little")


class SegmentWriter:
    """Appends to the file of one segment, and syncs it."""

    __slots__ = ("_disk", "_keep", "_starts", "fd", "segment")

    def __init__(
        self,
        disk: Disk,
        segment: Segment,
        path: Path | None = None,
        keep: Callable[[Segment, int, Starts], None] | None = None,
    ) -> None:
        """Create the file, at *path* if it has another name until it is finished. Raises OSError.

        *keep* is called for each page that was written, with its offset and where its appends start.
        """
        self.segment = segment
        self._disk = disk
        self._keep = keep
        self._starts = Starts(segment.first, FILE_HEADER_BYTES)
        self.fd = disk.create(path or segment.path)

    @property
    def is_open(self) -> bool:
        return self.fd >= 0

    def reopen(self) -> bool:
        """Open the file again for appending; False if it was removed or has another size. Raises OSError."""
        try:
            fd = self._disk.open_append(self.segment.path)
        except FileNotFoundError:
            return False
        try:
            if self._disk.size(fd) != self.segment.size:
                return False
            self.fd, fd = fd, _CLOSED
            return True
        finally:
            if fd >= 0:
                self._disk.close(fd)

    def sync(self) -> None:
        """Make the file durable, whether or not it is open. Raises CannotOpen, and OSError."""
        if self.is_open:
            self._disk.sync(self.fd)
            return
        with opening_to_sync():
            fd = self._disk.open_read(self.segment.path)
        try:
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)

    def close(self) -> None:
        """Close the file, if it is open. Raises OSError."""
        fd, self.fd = self.fd, _CLOSED
        if fd >= 0:
            self._disk.close(fd)

    def truncate(self) -> bool:
        """Remove the bytes of an append that failed; False when the file cannot be used any more."""
        if not self.segment.pages:
            # The file header belongs to the first append.
            return False
        try:
            self._disk.truncate_open(self.fd, self.segment.size)
        except OSError:
            return False
        return True

    def append(self, blocks: list[Block], notes: list[tuple[int, bytes]]) -> list[bytes]:
        """Write notes, each with its number, then blocks; returns the bytes that were written.

        Raises OSError; then :meth:`truncate` must succeed before the next append.
        """
        segment = self.segment
        salt = segment.header.salt
        pieces: list[bytes] = [] if segment.page_offsets else [segment.header.encode()]
        position = blocks[0].first if blocks else segment.next
        for number, content in notes:
            # A note has no due time, so that field has its number.
            pieces.append(append_header(salt, position, 0, number, content, NOTE))
            pieces.append(content)
        for block in blocks:
            data = block.data
            flags = MESSAGE_HEADERS if block.has_headers else 0
            count = block.next - block.first
            pieces.append(append_header(salt, block.first, count, block.due_ns, data, flags))
            pieces.append(data)
        self._disk.append(self.fd, pieces)
        end = segment.size
        for number, content in notes:
            end += APPEND_HEADER_BYTES + len(content)
            if segment.starts_page:
                self._next_page()
            self._starts.add(position, end)
            segment.add(0, position, end, 0)
            segment.last_note = number
        for block in blocks:
            end += APPEND_HEADER_BYTES + len(block.data)
            if segment.starts_page:
                self._next_page()
            time_ns = 0 if segment.page_times[-1] else published_ns(block.data)
            self._starts.add(block.first, end)
            segment.add(block.next - block.first, block.next, end, time_ns)
        return pieces

    def _next_page(self) -> None:
        self.end_page()
        self.segment.begin_page()

    def end_page(self) -> None:
        """End the page that was written last: nothing more is appended to it."""
        starts, segment = self._starts, self.segment
        if self._keep is not None and len(starts):
            self._keep(segment, segment.page_offsets[-1], starts)
        self._starts = Starts(segment.next, segment.size)


# Errors of opening a file to sync: no descriptor is free, or the file was removed. No sync has
# failed, so the job is repeated.
OPENING_ERRORS: Final = (CannotOpen, FileNotFoundError, NotADirectoryError)


class SyncJob:
    """One sync of a log: :meth:`run` in any thread, then `TopicLog.end_sync` in the loop."""

    def __init__(self, folder: Path, sealed: list[SegmentWriter], active: SegmentWriter | None) -> None:
        self.folder: Final = folder
        self.sealed = sealed
        # The file that was open when this was begun.
        self.active = active
        self.new_names = False
        # The folder itself is new: its name becomes durable when the folder above is synced.
        self.new_folder = False
        # How many messages and notes it is to make durable.
        self.unsynced = 0
        # Removed files: their unsynced data never becomes durable.
        self.removed: list[SegmentWriter] = []
        # The sync of the open file covers messages below this sequence and notes up to this number.
        self.active_next = active.segment.next if active else 0
        self.active_notes = active.segment.last_note if active else 0

    def run(self, disk: Disk) -> None:
        """Sync all files and folders of the job. Raises OSError."""
        self.sync_files(disk)
        if self.new_folder:
            disk.sync_folder(self.folder.parent)

    def sync_files(self, disk: Disk) -> None:
        """Sync all but the folder above, which many logs may share. Raises OSError."""
        error: OSError | None = None
        for writer in (*self.sealed, self.active):
            if writer is not None:
                try:
                    writer.sync()
                except CannotOpen as found:
                    error = error or found
                except FileNotFoundError as found:
                    error = error or found
                    self.removed.append(writer)
        if self.new_names:
            disk.sync_folder(self.folder)
        if error is not None:
            raise error

    def uses(self, writer: SegmentWriter) -> bool:
        """Whether a thread may be syncing the file."""
        return writer is self.active or writer in self.sealed


class Syncing:
    """The files of a log that are to be synced, and the one job that may run at a time."""

    __slots__ = ("folder_is_new", "new_names", "running", "sealed")

    def __init__(self) -> None:
        self.running: SyncJob | None = None
        # Files to which nothing is appended any more. They stay open until they are synced, so that this
        # works even when no other file can be opened.
        self.sealed: list[SegmentWriter] = []
        # Files were created or removed, so the folder itself is to be synced.
        self.new_names = False
        # The folder's own name has not been synced since the start.
        self.folder_is_new = True

    def uses(self, writer: SegmentWriter) -> bool:
        """Whether a thread is syncing the file, so that it can be closed only when that is done."""
        return self.running is not None and self.running.uses(writer)

    def begin(self, folder: Path, active: SegmentWriter | None) -> SyncJob:
        """A job for all that was written so far; *active* is the file that is open."""
        job = SyncJob(folder, self.sealed, active)
        job.new_names, self.new_names = self.new_names, False
        job.new_folder, self.folder_is_new = self.folder_is_new, False
        self.sealed = []
        self.running = job
        return job

    def worked(self, job: SyncJob) -> list[SegmentWriter]:
        """*job* has succeeded: all its data is durable; returns the files to close."""
        self.running = None
        for writer in job.sealed:
            writer.segment.become(SegmentState.SYNCED)
        if job.active is not None:
            segment = job.active.segment
            segment.synced, segment.synced_notes = job.active_next, job.active_notes
        return [*job.sealed, *self.take_durable()]

    def take_durable(self) -> list[SegmentWriter]:
        """The sealed files of which all is durable already; they are to be closed.

        Without another append no sync is requested, and they would stay open.
        """
        settled = [one for one in self.sealed if one.segment.is_durable and not self.uses(one)]
        for writer in settled:
            self.sealed.remove(writer)
            writer.segment.become(SegmentState.SYNCED)
        return settled

    def repeat(self, job: SyncJob) -> None:
        """*job* has ended early because something could not be opened: the next one includes the rest."""
        self.running = None
        self.new_names = self.new_names or job.new_names
        self.folder_is_new = self.folder_is_new or job.new_folder
        self.sealed = [one for one in job.sealed + self.sealed if one not in job.removed]
