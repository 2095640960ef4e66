"""Making a log durable: which files are not durable, the job that syncs them, and its result for each file.

A file is synced until a sync of it fails. After a failure the kernel may have dropped what it could not
write, and another sync would succeed without that data. So the file is given up, and those who waited are
told. An error of opening a file or folder is no failure of this kind: its job is repeated.
"""

import errno
from pathlib import Path
from typing import Final

from nsqd.log.disk import Disk
from nsqd.log.segment import SegmentState
from nsqd.log.segment_writer import SegmentWriter


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
        # An earlier error, if messages that this job is to make durable are in a file that nobody syncs
        # again: those who wait for this job are told of it.
        self.failed_before: OSError | None = None
        # What becomes durable of the open file: messages below this sequence, notes up to this one, bytes.
        self.active_next = active.segment.next if active else 0
        self.active_notes = active.segment.last_note if active else 0
        self.active_bytes = active.segment.size if active else 0

    def run(self, disk: Disk) -> None:
        """Sync all files and folders of the job. Raises OSError."""
        self.sync_files(disk)
        if self.new_folder:
            disk.sync_folder(self.folder.parent)

    def sync_files(self, disk: Disk) -> None:
        """Sync all but the folder above, which many logs may share. Raises OSError."""
        for writer in (*self.sealed, self.active):
            if writer is not None:
                writer.sync()
        if self.new_names:
            disk.sync_folder(self.folder)

    def uses(self, writer: SegmentWriter) -> bool:
        """Whether a thread may be syncing the file."""
        return writer is self.active or writer in self.sealed


class Syncing:
    """The files of a log that are to be synced, and the one job that may run at a time."""

    __slots__ = ("_failed", "folder_is_new", "new_names", "running", "sealed")

    def __init__(self) -> None:
        self.running: SyncJob | None = None
        # Files to which nothing is appended any more. They stay open until they are synced, so that this
        # works even when no other file can be opened.
        self.sealed: list[SegmentWriter] = []
        # Files were created or removed, so the folder itself is to be synced.
        self.new_names = False
        # In this life, the folder's own name has not been made durable yet.
        self.folder_is_new = True
        # See `SyncJob.failed_before`.
        self._failed: OSError | None = None

    def uses(self, writer: SegmentWriter) -> bool:
        """Whether a thread is syncing the file, so that it can be closed only when that is done."""
        return self.running is not None and self.running.uses(writer)

    def begin(self, folder: Path, active: SegmentWriter | None) -> SyncJob:
        """A job for all that was written so far; *active* is the file that is open."""
        job = SyncJob(folder, self.sealed, active)
        job.new_names, self.new_names = self.new_names, False
        job.new_folder, self.folder_is_new = self.folder_is_new, False
        job.failed_before, self._failed = self._failed, None
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

    def failed(self, job: SyncJob, error: OSError) -> list[SegmentWriter]:
        """*job* has failed, and what of it is durable is unknown; returns the files given up, all sealed."""
        self.running = None
        self.new_names = self.new_names or job.new_names
        self.folder_is_new = self.folder_is_new or job.new_folder
        active = job.active
        if active is not None and active.segment.size > job.active_bytes:
            self._failed = error
        given_up = job.sealed if active is None else [*job.sealed, active]
        for writer in given_up:
            self._give_up(writer)
        return given_up

    def repeat(self, job: SyncJob) -> None:
        """*job* has ended early because something could not be opened: the next one includes all of it."""
        self.running = None
        self.new_names = self.new_names or job.new_names
        self.folder_is_new = self.folder_is_new or job.new_folder
        self._failed = self._failed or job.failed_before
        self.sealed = job.sealed + self.sealed

    def missed(self, writer: SegmentWriter) -> None:
        """A sealed file was removed or cut by somebody: what was not durable of it never will be."""
        if writer.segment.synced < writer.segment.next:
            self._failed = FileNotFoundError(errno.ENOENT, "removed by somebody", str(writer.segment.path))
        self._give_up(writer)

    def _give_up(self, writer: SegmentWriter) -> None:
        if writer in self.sealed:
            self.sealed.remove(writer)
        # Somebody may have removed the file during a sync that then fails: it is given up already.
        if writer.segment.state is not SegmentState.FAILED:
            writer.segment.become(SegmentState.FAILED)
