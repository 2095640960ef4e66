"""Making a log durable: which files are not durable, the job that syncs them, and its result for each file.

After a failed sync nothing is appended to the log until a restart: see `Appender.end_sync`.
"""

from pathlib import Path
from typing import Final

from nsqd.log.disk import CannotOpen, Disk
from nsqd.log.segment import SegmentState
from nsqd.log.segment_writer import SegmentWriter

# Errors of opening what is to be synced: there are no descriptors, or somebody has removed it. No sync has
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
        # Files that somebody has removed: what was not durable of them never will be.
        self.gone: list[SegmentWriter] = []
        # What becomes durable of the open file: messages below this sequence, notes up to this one.
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
                    self.gone.append(writer)
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
        # In this life, the folder's own name has not been made durable yet.
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
        """*job* has succeeded: all that it was begun for is durable; returns the files to be closed."""
        self.running = None
        for writer in job.sealed:
            writer.segment.become(SegmentState.SYNCED)
        if job.active is not None:
            segment = job.active.segment
            segment.synced, segment.synced_notes = job.active_next, job.active_notes
        return [*job.sealed, *self.settle()]

    def settle(self) -> list[SegmentWriter]:
        """The sealed files of which all is durable already; they are to be closed.

        Without another append nobody asks for a sync, and they would stay open.
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
        self.sealed = [one for one in job.sealed + self.sealed if one not in job.gone]
