"""The copies that this node keeps: ``carried/<identity>/<appointment>/<topic>.topic/``."""

from collections import deque
from pathlib import Path
from typing import Final

from nsqclient.wire.names import is_ephemeral, is_valid_name
from nsqd.log.disk import Disk, remove_folders
from nsqd.replication import for_good
from nsqd.replication.copy_folder import CopyFile, CopyFolder
from nsqd.replication.durable import make_folders
from nsqd.replication.for_good import ForGood
from nsqd.replication.frames import IDENTITY_BYTES
from nsqd.storage.topic_store import DELETED_SUFFIX, FOLDER_SUFFIX, topic_folder

FOLDER: Final = "carried"


class Copies:
    """All copies of a node."""

    def __init__(self, disk: Disk, data_path: Path) -> None:
        self.disk = disk
        self.path = data_path / FOLDER
        # Folders of deleted topics, to be removed by any thread.
        self.removable: list[Path] = []
        self._folders: dict[Path, CopyFolder] = {}
        self._opened: deque[tuple[CopyFolder, CopyFile]] = deque()

    def identities(self) -> list[bytes]:
        """Identities of the homes whose logs are kept. Raises OSError."""
        return [bytes.fromhex(name) for name in self._names(self.path) if _is_identity(name)]

    def folder_of(self, identity: bytes) -> Path:
        """Where all copies of one home are."""
        return self.path / identity.hex()

    def for_good(self, identity: bytes) -> ForGood | None:
        """The note that a home is gone permanently; None when there is none. Raises OSError."""
        return for_good.load(self.disk, self.folder_of(identity))

    def forget_for_good(self, identity: bytes) -> None:
        """Remove that note, because the home has come after all. Raises OSError."""
        for_good.remove(self.disk, self.folder_of(identity))

    def read(self, identity: bytes, name: str) -> bytes:
        """A note beside the copies of a home. Raises OSError."""
        return self.disk.read_file(self.path / identity.hex() / name)

    def note(self, identity: bytes, name: str, content: bytes) -> None:
        """Note something beside the copies of a home. Raises OSError."""
        folder = self.path / identity.hex()
        self._make(folder)
        self.disk.replace(folder / name, content, durable=False)

    def appointments(self, identity: bytes) -> list[int]:
        """The appointments of which there are copies, the earliest first. Raises OSError."""
        folder = self.folder_of(identity)
        names = self._names(folder)
        for name in names:
            if name.endswith(DELETED_SUFFIX):
                self._remove_later(folder / name)
        return sorted(int(name) for name in names if name.isdecimal() and len(name) < 20)

    def begin(self, identity: bytes, appointment: int) -> None:
        """Make an appointment known, even one without topics. Raises OSError."""
        self._make(self._base(identity, appointment))

    def topics(self, identity: bytes, appointment: int) -> list[str]:
        """Raises OSError."""
        found = []
        for name in self._names(self._base(identity, appointment)):
            topic = name.removesuffix(FOLDER_SUFFIX)
            if name.endswith(DELETED_SUFFIX):
                self._remove_later(self._base(identity, appointment) / name)
            elif topic != name and is_valid_name(topic) and not is_ephemeral(topic):
                found.append(topic)
        return found

    def folder(self, identity: bytes, appointment: int, topic: str) -> CopyFolder:
        """The folder of one copy, which need not exist yet."""
        path = topic_folder(self._base(identity, appointment), topic)
        found = self._folders.get(path)
        if found is None:
            found = self._folders[path] = CopyFolder(self.disk, path, self._opened)
        return found

    def move(self, folder: CopyFolder, identity: bytes, appointment: int, topic: str) -> CopyFolder:
        """Make a copy that of a later appointment. Raises OSError."""
        moved = self.folder(identity, appointment, topic)
        if not self._names(folder.path):
            return moved
        folder.close()
        self._make(moved.path.parent)
        self.disk.rename(folder.path, moved.path)
        self.disk.sync_folder(moved.path.parent)
        self.disk.sync_folder(folder.path.parent)
        del self._folders[folder.path], self._folders[moved.path]
        folder.path = moved.path
        self._folders[folder.path] = folder
        for found in folder.files.values():
            if found.segment is not None:
                found.segment.folder = folder.path
        return folder

    def delete(self, identity: bytes, topic: str) -> None:
        """Remove every copy of a topic. Raises OSError."""
        for appointment in self.appointments(identity):
            path = topic_folder(self._base(identity, appointment), topic)
            if not self._names(path):
                continue
            folder = self._folders.pop(path, None)
            if folder is not None:
                folder.close()
                folder.gone = True
            self._put_aside(path)

    def remove(self, identity: bytes, appointment: int) -> None:
        """Remove all copies of an appointment. Raises OSError."""
        base = self._base(identity, appointment)
        for path in [path for path in self._folders if path.parent == base]:
            self._folders.pop(path).close()
        self._put_aside(base)

    def forget(self, folder: CopyFolder) -> None:
        """Close a copy to which nobody writes for now."""
        folder.close()
        if self._folders.get(folder.path) is folder:
            del self._folders[folder.path]

    def remove_deleted(self) -> None:
        """Remove the folders of deleted topics, which takes long; for any thread, one at a time.

        Raises OSError for the first folder that cannot be removed; the next call tries it again.
        """
        remove_folders(self.disk, self.removable)

    def _put_aside(self, path: Path) -> None:
        """Rename a folder, to a name that none has yet, and have it removed later. Raises OSError."""
        number = 0
        while self._names(path.with_name(f"{path.name}.{number}{DELETED_SUFFIX}")):
            number += 1
        deleted = path.with_name(f"{path.name}.{number}{DELETED_SUFFIX}")
        self.disk.rename(path, deleted)
        self.disk.sync_folder(path.parent)
        self._remove_later(deleted)

    def _remove_later(self, path: Path) -> None:
        if path not in self.removable:
            self.removable.append(path)

    def _base(self, identity: bytes, appointment: int) -> Path:
        return self.path / identity.hex() / str(appointment)

    def _make(self, path: Path) -> None:
        make_folders(self.disk, path)

    def _names(self, path: Path) -> list[str]:
        try:
            return self.disk.names(path)
        except FileNotFoundError:
            return []


def _is_identity(name: str) -> bool:
    return len(name) == 2 * IDENTITY_BYTES and not name.strip("0123456789abcdef")
