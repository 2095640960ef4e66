"""The topics of an incoming log, and work on them that waits for the disk: jobs for any thread.

An `IncomingLog` notes the end of each job.
"""

from dataclasses import dataclass
from typing import TypeAlias

from nsqd.log import segment_index
from nsqd.log.disk import Disk, sync_file
from nsqd.log.segment import Segment
from nsqd.replication.copies import Copies
from nsqd.replication.copy_file import measured
from nsqd.replication.copy_folder import CopyFolder, Step
from nsqd.replication.frames import Appends, FilePart, Remove, Rename, Seal
from nsqd.replication.records import CopyRecord
from nsqd.storage.slots import NAMES


class FolderJob:
    """A job on the folders of some topics: :meth:`run` in any thread, then :meth:`end`."""

    def __init__(self, folders: list[CopyFolder]) -> None:
        self.folders = folders
        for folder in folders:
            folder.is_at_work = True

    def run(self, disk: Disk) -> None:
        """Raises OSError."""
        raise NotImplementedError

    def end(self, error: OSError | None) -> None:  # noqa: ARG002 - subclasses note what was done
        """The job has run, or failed; also called when the connection is gone."""
        for folder in self.folders:
            folder.is_at_work = False

    def is_harmless(self, error: OSError) -> bool:
        """Whether a folder was not found because its topic was deleted."""
        return isinstance(error, FileNotFoundError) and any(folder.is_gone for folder in self.folders)


class LoadFolders(FolderJob):
    """Find the files of some topics of an earlier copy, by the numbers of the topics."""

    def __init__(self, by_number: dict[int, CopyFolder]) -> None:
        super().__init__(list(by_number.values()))
        self.by_number = by_number

    def run(self, _disk: Disk) -> None:
        """Raises OSError."""
        for folder in self.folders:
            if not folder.is_loaded:
                folder.load()


class ListTopics(FolderJob):
    """List the topics of a copy."""

    def __init__(self, copies: Copies, record: CopyRecord) -> None:
        super().__init__([])
        self.found: list[str] = []
        self._copies = copies
        self._record = record

    def run(self, _disk: Disk) -> None:
        """Raises OSError."""
        self.found = self._copies.topics(self._record)


class MakeFolders(FolderJob):
    """Make the folders of topics that are new in the copy, with one sync of the folder above."""

    def __init__(self, folders: list[CopyFolder]) -> None:
        super().__init__(folders)
        # Topics whose folder has files.
        self.occupied: list[str] = []

    def run(self, disk: Disk) -> None:
        """Raises OSError."""
        for folder in self.folders:
            try:
                disk.make_folder(folder.path)
            except FileExistsError:
                if disk.names(folder.path):
                    self.occupied.append(folder.topic)
        if self.folders:
            disk.sync_folder(self.folders[0].path.parent)

    def end(self, error: OSError | None) -> None:
        super().end(error)
        for folder in self.folders:
            folder.is_made = folder.is_loaded = error is None and folder.topic not in self.occupied

    def is_harmless(self, error: OSError) -> bool:  # noqa: ARG002 - the other folders are missing too
        return False


class BeginCopy(MakeFolders):
    """Make a new copy, or enter an earlier one, and make the folders of its new topics."""

    def __init__(
        self,
        copies: Copies,
        record: CopyRecord,
        folders: list[CopyFolder],
        resumed: list[CopyFolder],
        *,
        restart_serials: bool,
    ) -> None:
        """*folders* are to be made, *resumed* exist; *restart_serials*: others numbered their checkpoints."""
        super().__init__(folders)
        self.record = record
        self.resumed = resumed
        self._copies = copies
        self._restart_serials = restart_serials
        for folder in resumed:
            folder.is_at_work = True

    def run(self, disk: Disk) -> None:
        """Raises OSError."""
        if self._restart_serials:
            # Before the record says that the owner has numbered them.
            for folder in self.resumed:
                folder.restart_serials()
        if self.record.is_stored:
            self._copies.enter(self.record)
        else:
            self._copies.create(self.record)
        for folder in self.resumed:
            folder.cut_damage()
        super().run(disk)

    def end(self, error: OSError | None) -> None:
        super().end(error)
        for folder in self.resumed:
            folder.is_at_work = False


@dataclass(frozen=True, slots=True, eq=False)
class Deletion:
    """The topic of this folder was deleted.

    With *below*, a folder with messages from that position on stays: it is that of a later topic.
    """

    record: CopyRecord
    folder: CopyFolder
    below: int | None


class DeleteFolder(FolderJob):
    """Rename the folder of a deleted topic."""

    def __init__(self, copies: Copies, deletion: Deletion) -> None:
        super().__init__([deletion.folder])
        self.deletion = deletion
        self._copies = copies

    def run(self, _disk: Disk) -> None:
        """Raises OSError."""
        folder, below = self.deletion.folder, self.deletion.below
        if below is not None:
            folder.load()
            if folder.next_position > below:
                return
        folder.is_gone = True
        self._copies.rename_deleted(self.deletion.record, folder.topic)

    def end(self, error: OSError | None) -> None:
        super().end(error)
        self.deletion.folder.awaits_removal = False
        if error is None:
            self._copies.forget(self.deletion.record, self.deletion.folder)


class CopyJob(FolderJob):
    """Steps on the files of one topic."""

    def __init__(self, folder: CopyFolder, steps: list[Step]) -> None:
        super().__init__([folder])
        self.folder = folder
        self.steps = steps
        self.measured: dict[str, Segment | None] = {}

    @property
    def renames(self) -> bool:
        """Whether a file gets its final name."""
        return any(step == "rename" for step, _, _ in self.steps)

    def run(self, disk: Disk) -> None:
        """Raises OSError."""
        path = self.folder.path
        covered = False
        for step, its_name, other in self.steps:
            name = its_name
            if step in ("rename", "seal"):
                sync_file(disk, path / name)
                if step == "rename":
                    disk.rename(path / name, path / other)
                    name = other
                disk.sync_folder(path)
                segment = self.folder.known(name) or measured(disk, path / name)
                if segment is not None:
                    segment_index.write(disk, segment)
                self.measured[name] = segment
            else:
                if not covered:
                    # Files are removed because a checkpoint says that they are finished, so the checkpoint is
                    # made durable first.
                    covered = True
                    for slot in NAMES:
                        sync_file(disk, path / slot)
                        sync_file(disk, path / f"{slot}.new")
                    disk.sync_folder(path)
                if name.endswith(".log"):
                    disk.remove(path / name.replace(".log", ".index"))
                disk.remove(path / name)

    def end(self, error: OSError | None) -> None:
        super().end(error)
        if error is None:
            self.folder.end(self.steps, self.measured)
        else:
            self.folder.failed()


class CopySync:
    """Makes everything written to some topics durable: :meth:`run` in any thread, then :meth:`end`."""

    def __init__(self, folders: list[CopyFolder]) -> None:
        # A file had another name than expected, so not everything was synced.
        self.is_incomplete = False
        self.folders = folders
        self._files = [(folder, found, found.size) for folder in folders for found in folder.dirty.values()]
        self._names = [folder for folder in folders if folder.new_names]
        self._named = [(found, name) for folder in self._names for name, found in folder.files.items()]
        for folder in folders:
            folder.syncs += 1
        for folder in self._names:
            folder.new_names = False

    def run(self, disk: Disk) -> None:
        """Raises OSError."""
        for folder, found, _ in self._files:
            try:
                fd = disk.open_read(folder.path / found.name)
            except FileNotFoundError:
                # It was removed, or is being renamed by another thread.
                self.is_incomplete = self.is_incomplete or not folder.is_gone
                continue
            try:
                disk.sync(fd)
            finally:
                disk.close(fd)
        for folder in self._names:
            try:
                disk.sync_folder(folder.path)
            except FileNotFoundError:
                if not folder.is_gone:
                    raise

    def end(self, error: OSError | None) -> None:
        """The job has run, or failed: then it is not known what is on the disk."""
        for folder in self.folders:
            folder.syncs -= 1
            folder.is_loaded = folder.is_loaded and error is None
        for folder in self._names:
            folder.new_names = folder.new_names or self.is_incomplete or error is not None
        if self.is_incomplete or error is not None:
            return
        for found, name in self._named:
            found.is_named = found.is_named or found.name == name
        for folder, found, size in self._files:
            found.synced = size
            if found.size == size and folder.dirty.get(found.name) is found:
                del folder.dirty[found.name]
        for folder in self.folders:
            if not folder.is_gone:
                folder.names_synced()

    def is_harmless(self, error: OSError) -> bool:  # noqa: ARG002 - like `FolderJob`
        """Whether the error means nothing: none does."""
        return False


ReplicaJob: TypeAlias = LoadFolders | ListTopics | BeginCopy | MakeFolders | DeleteFolder | CopyJob | CopySync


FileFrame: TypeAlias = Appends | FilePart | Rename | Remove | Seal


class IncomingTopic:
    """One topic of a log that is streamed to this node: its folder, and frames that wait for the folder."""

    __slots__ = ("folder", "is_ready", "name", "number", "waiting")

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        # None until it is known in which copy it is.
        self.folder: CopyFolder | None = None
        # The folder exists, so frames are applied immediately.
        self.is_ready = False
        self.waiting: list[FileFrame] = []

    def apply(self, frame: FileFrame) -> None:
        """Apply a frame to the files. Raises OSError and Mismatch."""
        folder = self.folder
        if folder is None:
            raise AssertionError(f"topic {self.name} has no folder")
        if isinstance(frame, Appends):
            folder.append(frame.file, frame.offset, frame.data)
        elif isinstance(frame, FilePart):
            folder.part(frame.file, frame.offset, frame.check, frame.data)
        elif isinstance(frame, Rename):
            folder.rename(frame.file, frame.name)
        elif isinstance(frame, Remove):
            folder.remove(frame.file)
        else:
            folder.seal(frame.file, frame.size)

    def take_waiting(self) -> list[FileFrame]:
        """The frames that have waited for the folder, in order."""
        waiting, self.waiting = self.waiting, []
        return waiting


def size_of(frame: FileFrame) -> int:
    """How many bytes of memory a frame takes, about."""
    data = frame.data if isinstance(frame, Appends | FilePart) else b""
    return len(data) + 256
