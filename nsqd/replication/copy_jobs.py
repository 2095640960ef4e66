"""What waits for the disk in a copy: each is a job for any thread, whose end is told to who began it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from nsqd.log import segment_index
from nsqd.log.disk import Disk
from nsqd.log.segment import Segment
from nsqd.replication.durable import sync_file
from nsqd.replication.sound import measured
from nsqd.storage.slots import NAMES

if TYPE_CHECKING:
    from nsqd.replication.copy_folder import CopyFolder


@dataclass(slots=True)
class FindCopy:
    """Finding what there is of one copy, and the number of its folder."""

    folder: "CopyFolder"
    number: int

    def run(self, _disk: Disk) -> None:
        """Raises OSError."""
        if not self.folder.loaded:
            self.folder.load()


class CopyJob:
    """Work on one copy that waits for the disk: :meth:`run` in any thread, then `CopyFolder.end`."""

    def __init__(self, folder: "CopyFolder", steps: "list[tuple[str, str, str]]") -> None:
        self.folder = folder
        # What to do, to which file, and its new name.
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
                    # What goes is finished because a checkpoint says so: that is on the disk before it.
                    covered = True
                    for slot in NAMES:
                        sync_file(disk, path / slot)
                    disk.sync_folder(path)
                if name.endswith(".log"):
                    disk.remove(path / name.replace(".log", ".index"))
                disk.remove(path / name)


class CopySync:
    """What makes all that was written to some copies durable: :meth:`run` in any thread, then :meth:`end`."""

    def __init__(self, folders: "list[CopyFolder]") -> None:
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
        """It has run without an error."""
        for folder, found, size in self._files:
            found.synced = size
            if found.size == size and folder.dirty.get(found.name) is found:
                del folder.dirty[found.name]

    def failed(self) -> None:
        """What of it is on the disk nobody knows: what was not there before is had no more."""
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
