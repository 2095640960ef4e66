"""The copies of logs that this node holds.

    replicas/<owner>/<origin>.<number>/        a replica
    owned/<origin>.<epoch>.<number>/           a promoted copy

Each has ``copy.json`` and ``<topic>.topic/``. The folder in which a copy lies says whether it is promoted.
Every method says which threads may call it; a crash between any two steps leaves one valid copy.
"""

import re
from collections import deque
from pathlib import Path
from threading import Lock
from typing import Final

from nsqclient.wire.names import is_ephemeral, is_valid_name
from nsqd.log.disk import Disk, error_text, make_folders, remove_folders, sync_file
from nsqd.replication.copy_file import finish_files
from nsqd.replication.copy_folder import CopyFolder, OpenFile
from nsqd.replication.fields import is_copied_name
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.records import COPY_FILE_NAME, DamagedRecord, decode_copy, encode_copy
from nsqd.storage.topic_log import DELETED_SUFFIX, FOLDER_SUFFIX, topic_folder

REPLICAS: Final = "replicas"
OWNED: Final = "owned"
_OWNER: Final = re.compile(r"[0-9a-f]{32}")
_REPLICA: Final = re.compile(r"[0-9a-f]{32}\.(\d{1,19})")
_PROMOTED: Final = re.compile(r"[0-9a-f]{32}\.\d{1,20}\.(\d{1,19})")
# The number of a copy that was dropped is not used again while its folder exists.
_DROPPED: Final = re.compile(r"[0-9a-f]{32}(?:\.\d{1,20})?\.(\d{1,19})\.\d+" + re.escape(DELETED_SUFFIX))


class Copies:
    """See the module."""

    def __init__(self, disk: Disk, data_path: Path) -> None:
        self.disk = disk
        self.data_path = data_path
        # Why copies cannot be used, in one sentence, by their folders.
        self.problems: dict[Path, str] = {}
        # Folders of dropped copies and deleted topics, to be removed by any thread.
        self.removable: list[Path] = []
        self._next_number = 1
        self._folders: dict[tuple[int, str], CopyFolder] = {}
        self._opened: deque[OpenFile] = deque()
        # Records are written one at a time.
        self._writing = Lock()

    # --- the copies on disk ---

    def scan(self) -> list[LocalCopy]:
        """The copies on disk; `problems` has those that cannot be used. At the start only. Raises OSError."""
        found: list[LocalCopy] = []
        replicas = self.data_path / REPLICAS
        for owner in self._names(replicas):
            if _OWNER.fullmatch(owner):
                found += self._scan(replicas / owner, _REPLICA, promoted=False)
        return found + self._scan(self.data_path / OWNED, _PROMOTED, promoted=True)

    def _scan(self, folder: Path, pattern: re.Pattern[str], *, promoted: bool) -> list[LocalCopy]:
        found = []
        for name in self._names(folder):
            match = pattern.fullmatch(name) or _DROPPED.fullmatch(name)
            if match is None:
                continue
            self._next_number = max(self._next_number, int(match[1]) + 1)
            if match.re is _DROPPED:
                self._remove_later(folder / name)
                continue
            copy = self._read(folder / name, promoted=promoted)
            if copy is not None:
                found.append(copy)
                self._find_deleted(copy)
        return found

    def _read(self, path: Path, *, promoted: bool) -> LocalCopy | None:
        try:
            return decode_copy(self.disk.read_file(path / COPY_FILE_NAME), path, promoted=promoted)
        except FileNotFoundError:
            if any(name.endswith(FOLDER_SUFFIX) for name in self._names(path)):
                self.problems[path] = f"{COPY_FILE_NAME} is missing"
            else:
                # The copy was not complete when the process ended.
                self._remove_later(path)
        except DamagedRecord as error:
            self.problems[path] = str(error)
        except OSError as error:
            self.problems[path] = f"{COPY_FILE_NAME} cannot be read: {error_text(error)}"
        return None

    def _find_deleted(self, copy: LocalCopy) -> None:
        for name in self._names(copy.path):
            if name.endswith(DELETED_SUFFIX):
                self._remove_later(copy.path / name)

    def topics(self, copy: LocalCopy) -> list[str]:
        """The topics of a copy. For any thread. Raises OSError."""
        found = []
        for name in self._names(copy.path):
            topic = name.removesuffix(FOLDER_SUFFIX)
            if topic != name and is_valid_name(topic) and not is_ephemeral(topic):
                found.append(topic)
        return found

    def folder(self, copy: LocalCopy, topic: str) -> CopyFolder:
        """The folder of one topic of a copy, as the last stream has left it."""
        return self._folders.get((copy.number, topic)) or self.new_folder(copy, topic)

    def new_folder(self, copy: LocalCopy, topic: str) -> CopyFolder:
        """The folder of a topic that is new in a copy: nothing is known of one that had its name."""
        found = self._folders[copy.number, topic] = CopyFolder(self.disk, copy, topic, self._opened)
        return found

    # --- new copies ---

    def next_number(self) -> int:
        """The number of the next copy."""
        number, self._next_number = self._next_number, self._next_number + 1
        return number

    def new(self, origin: bytes, owner: bytes, *, origin_node_id: int = 0) -> LocalCopy:
        """A new replica, which :meth:`create` writes."""
        number = self.next_number()
        path = self.data_path / REPLICAS / owner.hex() / f"{origin.hex()}.{number}"
        return LocalCopy(origin, owner, number, path, origin_node_id)

    def create(self, copy: LocalCopy) -> None:
        """Make the folder of a new replica, durably. For any thread. Raises OSError."""
        with self._writing:
            make_folders(self.disk, copy.path.parent)
            try:
                self.disk.make_folder(copy.path)
            except FileExistsError:
                # An attempt that failed in part.
                self.problems.pop(copy.path, None)
            self._write(copy.path, encode_copy(copy))
            self.disk.sync_folder(copy.path.parent)
            copy.is_stored = True

    # --- changes ---

    def save(self, copy: LocalCopy) -> None:
        """Write the record of a copy, durably; :meth:`create` does for a new one. For any thread.

        Raises OSError.
        """
        with self._writing:
            if copy.is_stored and not copy.is_dropped:
                self._write(copy.path, encode_copy(copy))

    def enter(self, copy: LocalCopy) -> None:
        """The owner of *copy* streams into it: write its record, and move the folder. For any thread.

        Raises OSError.
        """
        with self._writing:
            self._write(copy.path, encode_copy(copy))
            path = self.data_path / REPLICAS / copy.owner.hex() / copy.path.name
            self._move(copy, path)

    def promote(self, copy: LocalCopy, epoch: int) -> None:
        """Let a replica become a promoted copy under this epoch, or raise the epoch of a promoted copy.

        Before the folder is renamed it is a replica. For any thread, while nothing is written to the copy;
        after an error it may be called again. Raises OSError.
        """
        with self._writing:
            if not copy.promoted:
                self._sync(copy)
            self._write(copy.path, encode_copy(copy, epoch))
            if not copy.promoted:
                path = self.data_path / OWNED / f"{copy.origin.hex()}.{epoch}.{copy.number}"
                # A call that failed may have renamed it already.
                self._move(copy, copy.path if copy.path.parent == path.parent else path)
            copy.epoch, copy.seen, copy.promoted = epoch, max(copy.seen, epoch), True

    def finish_files(self, copy: LocalCopy) -> None:
        """Give complete files their names, and remove incomplete ones: before topics are recovered.

        For any thread, while nothing is written to the copy. Raises OSError.
        """
        for topic in self.topics(copy):
            finish_files(self.disk, topic_folder(copy.path, topic), topic)

    def _sync(self, copy: LocalCopy) -> None:
        """Make all files of a copy durable."""
        for topic in self.topics(copy):
            path = topic_folder(copy.path, topic)
            for name in finish_files(self.disk, path, topic) or ():
                if is_copied_name(name):
                    sync_file(self.disk, path / name)
            self.disk.sync_folder(path)
        self.disk.sync_folder(copy.path)

    def _write(self, path: Path, content: bytes) -> None:
        self.disk.replace(path / COPY_FILE_NAME, content, durable=True)
        self.disk.sync_folder(path)

    def _move(self, copy: LocalCopy, path: Path) -> None:
        """Rename the folder of a copy, durably."""
        before = copy.path
        if path != before:
            make_folders(self.disk, path.parent)
            self.disk.rename(before, path)
            copy.path = path
            self.disk.sync_folder(before.parent)
        self.disk.sync_folder(path.parent)

    # --- removal ---

    def drop(self, copy: LocalCopy) -> None:
        """Rename a copy, so that it is not found again. For any thread, while no file is open.

        After an error it may be called again. Raises OSError.
        """
        with self._writing:
            if copy.is_dropped or self._exists(copy.path):
                if not copy.is_dropped:
                    self._rename_aside(copy.path)
                self.disk.sync_folder(copy.path.parent)
            # The folder of a new copy is missing if the connection ended before it was made.
            copy.is_dropped = True
        for key in [key for key in list(self._folders) if key[0] == copy.number]:
            self._folders.pop(key, None)

    def delete_topic(self, copy: LocalCopy, topic: str, below: int | None = None) -> None:
        """Rename the folder of a deleted topic, if there is one. For any thread. Raises OSError.

        With *below*, a folder with messages from that position on stays: it is that of a later topic.
        """
        folder = self.folder(copy, topic)
        if below is not None:
            folder.close()
            folder.load()
            if folder.next_position > below:
                return
        self._folders.pop((copy.number, topic), None)
        if self._exists(folder.path):
            self._rename_aside(folder.path)
            self.disk.sync_folder(copy.path)

    def remove_deleted(self) -> None:
        """Remove dropped copies and deleted topics, which takes long. For any thread, one at a time.

        Raises OSError for the first folder that cannot be removed; the next call tries it again.
        """
        remove_folders(self.disk, self.removable)

    def _rename_aside(self, path: Path) -> None:
        number = 0
        while self._exists(deleted := path.with_name(f"{path.name}.{number}{DELETED_SUFFIX}")):
            number += 1
        self.disk.rename(path, deleted)
        self._remove_later(deleted)

    def _remove_later(self, path: Path) -> None:
        if path not in self.removable:
            self.removable.append(path)

    def _exists(self, path: Path) -> bool:
        try:
            self.disk.names(path)
        except FileNotFoundError:
            return False
        return True

    def _names(self, path: Path) -> list[str]:
        try:
            return self.disk.names(path)
        except FileNotFoundError:
            return []
