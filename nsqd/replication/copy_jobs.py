"""Work on a copy that waits for the disk: jobs for any thread, whose end is reported to their owner."""

from dataclasses import dataclass
from typing import TypeAlias

from nsqd.log import segment_index
from nsqd.log.disk import Disk
from nsqd.log.segment import Segment
from nsqd.replication.copy_folder import CopyFolder, Step
from nsqd.replication.durable import sync_file
from nsqd.replication.sound import measured
from nsqd.storage.slots import NAMES


@dataclass(slots=True)
class FindCopy:
    """Finding the files of one copy; *number* is that of its folder."""

    folder: CopyFolder
    number: int

    def run(self, _disk: Disk) -> None:
        """Raises OSError."""
        if not self.folder.loaded:
            self.folder.load()


class CopyJob:
    """Work on one copy that waits for the disk: :meth:`run` in any thread, then `CopyFolder.end`."""

    def __init__(self, folder: CopyFolder, steps: list[Step]) -> None:
        self.folder = folder
        self.steps = steps
        self.measured: dict[str, Segment | None] = {}

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
                    disk.sync_folder(path)
                if name.endswith(".log"):
                    disk.remove(path / name.replace(".log", ".index"))
                disk.remove(path / name)


class CopySync:
    """Makes all that was written to some copies durable: :meth:`run` in any thread, then :meth:`end`."""

    def __init__(self, folders: list[CopyFolder]) -> None:
        self._files = [(folder, found, found.size) for folder in folders for found in folder.dirty.values()]
        self._names = [folder for folder in folders if folder.new_names]
        for folder in self._names:
            folder.new_names = False

    def run(self, disk: Disk) -> None:
        """Raises OSError."""
        for folder, found, _ in self._files:
            sync_file(disk, folder.path / found.name)
        for folder in self._names:
            disk.sync_folder(folder.path)

    def end(self) -> None:
        """The job has run without an error: note what is durable."""
        for folder, found, size in self._files:
            found.synced = size
            if found.size == size and folder.dirty.get(found.name) is found:
                del folder.dirty[found.name]

    def failed(self) -> None:
        """Nobody knows what is on the disk now: the copies are to be looked at again."""
        for folder in self._names:
            folder.new_names = True
        for folder, _, _ in self._files:
            folder.loaded = False


@dataclass(slots=True)
class SyncUpTo:
    """An fsync of all that was written up to a position of the stream."""

    sync: CopySync
    position: int

    def run(self, disk: Disk) -> None:
        """Raises OSError."""
        self.sync.run(disk)


KeeperJob: TypeAlias = FindCopy | SyncUpTo | CopyJob
