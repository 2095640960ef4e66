"""The copy of one topic's files: which operations run immediately, and which wait for the disk.

A copy has the same bytes as the primary, at the same places of files of the same names, so it recovers as the
primary would. Everything in it was checked: appends have their own checksums, a part of a file has that of
its frame. A torn end that a crash has left is cut off before the file is reported.

Quick operations run immediately: appends, and the small files of checkpoints. A `FolderSync` runs in a thread
the operations that wait for the disk: fsyncs, and then renames and removals of log files.
"""

from collections import deque
from pathlib import Path
from typing import Final, TypeAlias

from xxhash import xxh3_64_intdigest

from nsqd.log.disk import Disk, sync_file
from nsqd.log.layout import FILE_HEADER_BYTES, NewerVersion, NotALog, decode_file_header
from nsqd.log.segment import Segment
from nsqd.replication.copy_file import (
    NEW,
    UNSYNCED,
    CopyFile,
    Mismatch,
    checked,
    find_file,
    finish_files,
    grow,
    newest_checkpoint,
    numbers,
)
from nsqd.replication.fields import is_copied_name
from nsqd.replication.frames import Appends, CopiedFile, FilePart, Remove, Rename, Seal
from nsqd.replication.local_copy import LocalCopy
from nsqd.storage.slots import NAMES
from nsqd.storage.topic_log import topic_folder

# So many files are open for appending, in all copies.
_MAX_OPEN: Final = 256

FileFrame: TypeAlias = Appends | FilePart | Rename | Remove | Seal
OpenFile: TypeAlias = "tuple[CopyFolder, CopyFile]"


class CopyFolder:
    """The copy of one topic. One thread calls the methods, except where they say so; they raise OSError."""

    def __init__(self, disk: Disk, copy: LocalCopy, topic: str, opened_files: deque[OpenFile]) -> None:
        self.topic = topic
        self.files: dict[str, CopyFile] = {}
        # Files with more in them than was synced, and whether names have changed since the last sync.
        self.dirty: dict[str, CopyFile] = {}
        self.new_names = False
        # Log files that the next sync renames, to their new names, and those that it removes.
        self.renames: dict[str, str] = {}
        self.removals: list[str] = []
        # Complete log files whose index is not written yet.
        self.unindexed: dict[CopyFile, None] = {}
        self.is_loaded = False
        # The folder exists.
        self.is_made = False
        # The topic was deleted, and the folder is renamed or will be.
        self.is_gone = False
        self._disk = disk
        self._copy = copy
        self._opened = opened_files

    @property
    def path(self) -> Path:
        return topic_folder(self._copy.path, self.topic)

    # --- the files on disk ---

    def load(self) -> None:
        """Find the files, and cut off torn ends. For any thread, while the folder is closed."""
        self.files, self.dirty, self.unindexed = {}, {}, {}
        path, disk = self.path, self._disk
        names = finish_files(disk, path, self.topic)
        self.is_made = names is not None
        for name in names or ():
            found = find_file(disk, path / name) if is_copied_name(name) else None
            if found is None or not found.is_complete:
                continue
            self.files[name] = found
            if not found.is_indexed:
                # An earlier write may not be on the disk, and neither may its name.
                self.dirty[name] = found
                self.new_names = True
        self.is_loaded = True

    @property
    def problem(self) -> str:
        """Why no stream may enter the copy; empty when one may."""
        return next((f"{one.name}: {one.problem}" for one in self.files.values() if one.problem), "")

    def cut_damage(self) -> None:
        """Cut off damage and everything behind it, because a stream replaces it. For any thread."""
        for found in self.files.values():
            if found.bounds is not None:
                self._disk.truncate(self.path / found.name, found.size)
                found.bounds = None

    def restart_serials(self) -> None:
        """Keep the newest checkpoint under a serial number below any other. For any thread, after a load.

        Another node, or this one, has numbered the checkpoints. The first one of the stream that enters the
        copy has to count.
        """
        path, disk = self.path, self._disk
        found = newest_checkpoint(disk, path, self.topic)
        if found is None:
            return
        name, content = found
        # The other file is removed first: it would count from the rename on.
        sync_file(disk, path / name)
        disk.sync_folder(path)
        for other in NAMES:
            if other != name and other in self.files:
                disk.remove(path / other)
                self._forget(self.files[other])
        disk.replace(path / name, content, durable=True)
        self.files[name] = CopyFile(name, len(content))
        self.new_names = True

    def report(self) -> tuple[CopiedFile, ...]:
        """The log files as they are reported to the primary."""
        return tuple(one.report() for one in self.files.values() if one.is_log and one.is_complete)

    @property
    def next_position(self) -> int:
        """The position behind the last message that is known to be here."""
        return max((one.report().next_seq for one in self.files.values()), default=0)

    # --- writing ---

    def apply(self, frame: FileFrame) -> None:
        """Apply a frame to the files. Raises Mismatch."""
        if isinstance(frame, Appends):
            self._append(frame.file, frame.offset, frame.data)
        elif isinstance(frame, FilePart):
            self._part(frame.file, frame.offset, frame.check, frame.data)
        elif isinstance(frame, Rename):
            self._rename(frame.file, frame.name)
        elif isinstance(frame, Remove):
            self.removals.append(frame.file)
        else:
            self._seal(frame.file, frame.size)

    def _append(self, name: str, offset: int, data: bytes) -> None:
        """Append whole appends to a log file; those at offset 0 begin the file."""
        found = self.files.get(name)
        at = 0
        if found is None:
            if offset:
                raise Mismatch(f"{name} continues at {offset}, and there is no such file in the copy")
            segment = self._begun(name, data)
            at = FILE_HEADER_BYTES
        elif found.segment is None or found.is_sealed or found.size != offset:
            raise Mismatch(f"{name} continues at {offset}, and its copy ends at {found.size}")
        else:
            segment = found.segment
        appends = checked(name, data, at, offset, segment.header.salt)
        if found is None:
            found = self._create(name, segment)
        self._write(found, data)
        for append in appends:
            grow(segment, append, data, offset)
        found.size = segment.size = offset + len(data)

    def _part(self, name: str, offset: int, check: int, data: bytes) -> None:
        """Write a part of a file as the primary has it, damaged or not."""
        if xxh3_64_intdigest(data) != check:
            raise Mismatch(f"a part of {name} was damaged on its way")
        if offset and name in NAMES and name + NEW in self.files:
            name += NEW
        found = self.files.get(name)
        if not offset:
            header = None if name.startswith("checkpoint") else self._begun(name, data).header
            if found is not None:
                self._forget(found)
                self._disk.remove(self.path / name)
            found = self._create(name, None)
            found.salt = 0 if header is None else header.salt
        elif found is None or offset > found.size:
            raise Mismatch(f"a part of {name} at {offset} does not join its copy")
        elif found.is_log and (found.is_sealed or offset != found.size):
            raise Mismatch(f"a part of {name} at {offset} does not join its copy of {found.size} bytes")
        if found.is_log:
            self._write(found, data)
            # The contents are checked when the file is complete.
            found.segment = None
            found.size = offset + len(data)
        else:
            self._write_over(found, data, offset)

    def _begun(self, name: str, data: bytes) -> Segment:
        try:
            header = decode_file_header(data[:FILE_HEADER_BYTES])
        except (NotALog, NewerVersion) as error:
            raise Mismatch(f"{name} does not begin as a log does: {error}") from error
        number, generation = numbers(name)
        return Segment(self.path, number, header, generation)

    def _create(self, name: str, segment: Segment | None) -> CopyFile:
        found = CopyFile(name, 0, 0 if segment is None else segment.header.salt, segment)
        try:
            found.fd = self._disk.create(self.path / name)
        except FileExistsError:
            if found.is_complete:
                raise
            # An earlier stream has left it.
            self._disk.remove(self.path / name)
            found.fd = self._disk.create(self.path / name)
        self._remember(found)
        self.files[name] = found
        self.new_names = True
        return found

    def _write(self, found: CopyFile, data: bytes) -> None:
        """Append to the file; the next load cuts off a write that fails in part."""
        try:
            if found.fd < 0:
                found.fd = self._disk.open_append(self.path / found.name)
                self._remember(found)
            # Another owner, or a start of this node, may have written an index before the primary was done.
            found.is_indexed = False
            self.dirty[found.name] = found
            self._disk.append(found.fd, [data])
        except OSError:
            self._close(found)
            self.is_loaded = False
            raise

    def _write_over(self, found: CopyFile, data: bytes, offset: int) -> None:
        self._close(found)
        self.dirty[found.name] = found
        fd = self._disk.open_write(self.path / found.name)
        try:
            self._disk.write_at(fd, data, offset)
        finally:
            self._disk.close(fd)
        found.size = max(found.size, offset + len(data))

    def _remember(self, found: CopyFile) -> None:
        self._opened.append((self, found))
        while len(self._opened) > _MAX_OPEN:
            folder, oldest = self._opened.popleft()
            folder._close(oldest)

    def _close(self, found: CopyFile) -> None:
        fd, found.fd = found.fd, -1
        if fd >= 0:
            self._disk.close(fd)

    def _forget(self, found: CopyFile) -> None:
        self._close(found)
        self.files.pop(found.name, None)
        self.dirty.pop(found.name, None)
        self.unindexed.pop(found, None)

    # --- names ---

    def _rename(self, name: str, other: str) -> None:
        """Give a complete file its name after the next sync: a power cut must leave a checkpoint."""
        found = self.files.get(name)
        if found is None or found.is_complete or name.rpartition(".")[0] != other:
            raise Mismatch(f"{name} cannot be renamed to {other}")
        self._close(found)
        if found.is_log:
            self.renames[name] = other
            return
        self._disk.rename(self.path / name, self.path / (other + NEW))
        self.renamed(found, other + NEW)
        self.dirty[found.name] = found

    def renamed(self, found: CopyFile, other: str) -> None:
        """A file has another name, and replaces the file that had it."""
        old = self.files.get(other)
        if old is not None:
            self._forget(old)
        del self.files[found.name]
        if self.dirty.pop(found.name, None) is not None:
            self.dirty[other] = found
        found.name = other
        self.files[other] = found
        self.new_names = True

    def _seal(self, name: str, size: int) -> None:
        """Nothing is appended any more to a file."""
        found = self.files.get(name)
        if found is None or found.size != size or not found.is_log:
            has = "is not there" if found is None else f"has {found.size}"
            raise Mismatch(f"{name} ends with {size} bytes, and its copy {has}")
        self._close(found)
        self.sealed(found)

    def sealed(self, found: CopyFile) -> None:
        """A log file is complete."""
        found.is_sealed = True
        if not found.is_indexed:
            self.unindexed[found] = None

    @property
    def has_work(self) -> bool:
        """Whether something waits for a sync."""
        return bool(self.dirty or self.new_names or self.renames or self.removals)

    def entered(self) -> None:
        """A stream has entered the copy, which may have another folder."""
        for found in self.files.values():
            found.is_sealed = False
            if found.segment is not None:
                found.segment.move_to(self.path)

    def close(self) -> None:
        """Close all files. The primary sends incomplete files, renames and removals again."""
        for found in self.files.values():
            self._close(found)
        # The next load removes incomplete files, and finds the content of the others.
        incomplete = any(
            not one.is_complete or (one.is_log and one.segment is None) for one in self.files.values()
        )
        self.is_loaded = self.is_loaded and not (incomplete or self.removals)
        self.renames, self.removals = {}, []


class FolderSync:
    """Makes all writes to a topic until now durable, then applies renames and removals.

    Made in the thread of the loop; :meth:`run` in any thread, then :meth:`end`.
    """

    def __init__(self, folder: CopyFolder) -> None:
        self.folder = folder
        files = folder.files
        self._renames, folder.renames = folder.renames, {}
        self._removals, folder.removals = folder.removals, []
        self._synced = [(one, one.size) for one in folder.dirty.values() if one.is_complete]
        self._synced += [(files[name], files[name].size) for name in self._renames if name in files]
        self._syncs_names, folder.new_names = folder.new_names or bool(self._renames), False

    def run(self, disk: Disk) -> None:
        """Raises OSError. A file that is not found was replaced by a later one."""
        path = self.folder.path
        for found, _ in self._synced:
            sync_file(disk, path / found.name)
        for name, other in self._renames.items():
            disk.rename(path / name, path / other)
        if self._syncs_names or self._removals:
            disk.sync_folder(path)
        # Files are removed because a checkpoint says that they are finished, so it is durable by now.
        for name in self._removals:
            disk.remove(path / name.replace(".log", ".index"))
            disk.remove(path / name)

    def end(self, error: Exception | None) -> None:
        """The job has run, or failed: then the state of the disk is unknown, and the next load reads it."""
        folder = self.folder
        if error is not None:
            folder.is_loaded = False
            return
        new_names = folder.new_names
        for name, other in self._renames.items():
            if name in folder.files:
                folder.renamed(folder.files[name], other)
                folder.sealed(folder.files[other])
        folder.new_names = new_names
        for found, size in self._synced:
            if found.size == size and folder.dirty.get(found.name) is found:
                del folder.dirty[found.name]
        for name in self._removals:
            if name in folder.files:
                folder._forget(folder.files[name])
        for name, final in UNSYNCED.items():
            if name in folder.files and name not in folder.dirty:
                folder._disk.rename(folder.path / name, folder.path / final)
                folder.renamed(folder.files[name], final)
