"""The copy of one topic's files: what is written immediately, and what waits for the disk.

A copy has the same bytes as the primary, at the same places of files of the same names, so it recovers as the
primary would. Everything in it was checked: appends have their own checksums, a part of a file has that of
its frame. A torn end that a crash has left is cut off before the file is reported.

Quick work is done immediately: appends, and the small files of checkpoints. Work that waits for the disk is a
job for any thread: making the folder, sealing, renaming or removing a log file, and every fsync.
"""

from collections import deque
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from xxhash import xxh3_64_intdigest

from nsqd.log.disk import Disk, sync_file
from nsqd.log.layout import FILE_HEADER_BYTES, NewerVersion, NotALog, decode_file_header
from nsqd.log.segment import Segment
from nsqd.replication.copy_file import (
    INCOMPLETE,
    NEW,
    UNSYNCED,
    CopyFile,
    Mismatch,
    checked,
    find_file,
    grow,
    newest_checkpoint,
    numbers,
    settle,
)
from nsqd.replication.fields import is_copied_name
from nsqd.replication.frames import CopiedFile
from nsqd.storage.slots import NAMES
from nsqd.storage.topic_log import topic_folder

# So many files are open for appending, in all copies.
_MAX_OPEN: Final = 256

# Work for a job: "rename", "seal" or "remove", the file, and its new name.
Step: TypeAlias = tuple[str, str, str]
OpenFile: TypeAlias = "tuple[CopyFolder, CopyFile]"


class HasPath(Protocol):
    """The copy of a log, whose folder may be renamed."""

    path: Path


class CopyFolder:
    """The copy of one topic. One thread calls the methods, except where they say so; they raise OSError."""

    def __init__(self, disk: Disk, copy: HasPath, topic: str, opened_files: deque[OpenFile]) -> None:
        self.topic = topic
        self.files: dict[str, CopyFile] = {}
        # Files with more in them than was synced, and whether names have changed since the last sync.
        self.dirty: dict[str, CopyFile] = {}
        self.new_names = False
        self.is_loaded = False
        # The folder exists.
        self.is_made = False
        # The topic was deleted, and the folder is renamed or will be.
        self.is_gone = False
        # A thread is using the folder; and how many syncs of its files are running.
        self.is_at_work = False
        self.syncs = 0
        # The topic was deleted, and a job is to rename the folder.
        self.awaits_removal = False
        # The folder of a deleted topic of the same name, which is still in use.
        self.predecessor: CopyFolder | None = None
        self._steps: list[Step] = []
        self._disk = disk
        self._copy = copy
        self._opened = opened_files

    @property
    def path(self) -> Path:
        return topic_folder(self._copy.path, self.topic)

    @property
    def is_busy(self) -> bool:
        """Whether a thread uses this folder, or one before it of the same name."""
        before = self.predecessor
        if before is not None and not before.is_in_use:
            self.predecessor = before = None
        return self.is_at_work or self.awaits_removal or (before is not None and before.is_busy)

    @property
    def is_in_use(self) -> bool:
        """Whether a thread uses the folder or syncs files in it, also as one before it of the same name."""
        before = self.predecessor
        return self.is_busy or self.syncs > 0 or (before is not None and before.is_in_use)

    # --- what there is ---

    def load(self) -> None:
        """Find the files, and cut off torn ends. For any thread, while the folder is closed."""
        self.files, self.dirty, self._steps = {}, {}, []
        path, disk = self.path, self._disk
        names = settle(disk, path, self.topic)
        self.is_made = names is not None
        for name in names or ():
            if not is_copied_name(name) or name.endswith(INCOMPLETE):
                continue
            found = find_file(disk, path / name)
            if found is None:
                continue
            self.files[name] = found
            if found.is_log and not (found.problem or found.sealed):
                # A write of an earlier process may not be on the disk.
                self.dirty[name] = found
        self.is_loaded = True

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
        """The files as they are reported to the primary."""
        return tuple(one.report() for one in self.files.values() if not one.name.endswith(INCOMPLETE))

    def known(self, name: str) -> Segment | None:
        """The extent of a file whose appends are all known; None for others."""
        found = self.files.get(name)
        return None if found is None else found.segment

    @property
    def next_position(self) -> int:
        """The position behind the last message that is known to be here."""
        return max((one.report().next_seq for one in self.files.values()), default=0)

    # --- writing ---

    def append(self, name: str, offset: int, data: bytes) -> None:
        """Append whole appends to a log file; those at offset 0 begin the file. Raises Mismatch."""
        found = self.files.get(name)
        at = 0
        if found is None:
            if offset:
                raise Mismatch(f"{name} continues at {offset}, and there is no such file in the copy")
            segment = self._begun(name, data)
            at = FILE_HEADER_BYTES
        elif found.segment is None or not _continues(found, offset):
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

    def part(self, name: str, offset: int, check: int, data: bytes) -> None:
        """Write a part of a file as the primary has it, damaged or not. Raises Mismatch."""
        if xxh3_64_intdigest(data) != check:
            raise Mismatch(f"a part of {name} was damaged on its way")
        if offset and name + NEW in self.files and name in NAMES:
            name += NEW
        found = self.files.get(name)
        if found is not None and found.problem:
            raise Mismatch(f"the copy of {name} has a newer format")
        if not offset:
            header = None if name.startswith("checkpoint") else self._begun(name, data).header
            if found is not None:
                self._forget(found)
                self._disk.remove(self.path / name)
            found = self._create(name, None)
            found.salt = 0 if header is None else header.salt
        elif found is None or offset > found.size or (found.is_log and not _continues(found, offset)):
            raise Mismatch(f"a part of {name} at {offset} does not join its copy")
        if found.is_log:
            self._write(found, data)
            # The contents are looked at when the file is complete.
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
            if not name.endswith(INCOMPLETE):
                raise
            # An earlier stream has left it.
            self._disk.remove(self.path / name)
            found.fd = self._disk.create(self.path / name)
        self._remember(found)
        self.files[name] = found
        self.new_names = True
        return found

    def _write(self, found: CopyFile, data: bytes) -> None:
        """Write behind what is there; the next load cuts off a write that fails in part."""
        try:
            if found.fd < 0:
                found.fd = self._disk.open_append(self.path / found.name)
                self._remember(found)
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
        found.synced = min(found.synced, offset)

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

    # --- names ---

    def rename(self, name: str, other: str) -> None:
        """Give a complete file its name; a checkpoint gets it immediately. Raises Mismatch."""
        found = self.files.get(name)
        if found is None or not name.endswith(INCOMPLETE) or name.rpartition(".")[0] != other:
            raise Mismatch(f"{name} cannot be renamed to {other}")
        self._close(found)
        if found.is_log:
            self._steps.append(("rename", name, other))
            return
        (second,) = set(NAMES) - {other}
        if other in self.files and not self._is_durable(second):
            # A power cut must leave a checkpoint, so this one does not replace the other before it is synced.
            other += NEW
        elif other + NEW in self.files:
            # An older one that was not synced.
            self._forget(self.files[other + NEW])
            self._disk.remove(self.path / (other + NEW))
        self._disk.rename(self.path / name, self.path / other)
        self._renamed(found, other)

    def _is_durable(self, name: str) -> bool:
        """Whether a file and its name are certainly on the disk."""
        found = self.files.get(name)
        if found is None or name in self.dirty:
            return False
        return found.is_named and found.synced >= found.size

    def _renamed(self, found: CopyFile, other: str) -> None:
        old = self.files.get(other)
        if old is not None:
            self._close(old)
        del self.files[found.name]
        self.dirty.pop(other, None)
        if self.dirty.pop(found.name, None) is not None:
            self.dirty[other] = found
        found.name = other
        found.is_named = False
        self.files[other] = found
        self.new_names = True

    def names_synced(self) -> None:
        """A sync has ended: checkpoints that are durable now get their final names."""
        for name, final in UNSYNCED.items():
            found = self.files.get(name)
            if found is not None and self._is_durable(name):
                self._disk.rename(self.path / name, self.path / final)
                self._renamed(found, final)
                # A load finds it under either name.
                found.is_named = True

    # --- what waits for the disk ---

    def seal(self, name: str, size: int) -> None:
        """Nothing is appended any more to a file. Raises Mismatch."""
        found = self.files.get(name)
        if found is None or found.size != size or not found.is_log:
            has = "is not there" if found is None else f"has {found.size}"
            raise Mismatch(f"{name} ends with {size} bytes, and its copy {has}")
        self._close(found)
        found.sealed = found.is_final = True
        self._steps.append(("seal", name, ""))

    def remove(self, name: str) -> None:
        """The primary has removed a file; one that does not exist is ignored. Raises Mismatch."""
        found = self.files.get(name)
        if found is not None and found.problem:
            raise Mismatch(f"the copy of {name} has a newer format")
        self._steps.append(("remove", name, ""))

    @property
    def has_steps(self) -> bool:
        """Whether a file waits to be sealed, renamed or removed."""
        return bool(self._steps)

    @property
    def has_renames(self) -> bool:
        """Whether a complete file waits for its final name."""
        return any(step == "rename" for step, _, _ in self._steps)

    def begin(self) -> list[Step]:
        """Take the steps that wait for the disk; none while a thread uses the folder."""
        if self.is_busy:
            return []
        steps, self._steps = self._steps, []
        self.is_at_work = bool(steps)
        return steps

    def end(self, steps: list[Step], measured: dict[str, Segment | None]) -> None:
        """The job has done these steps; *measured* is what it found in files, by their new names."""
        self.is_at_work = False
        for step, name, other in steps:
            found = self.files.get(name)
            if found is None:
                continue
            if step == "remove":
                self._forget(found)
                continue
            if step == "rename":
                self._renamed(found, other)
            found.sealed = found.is_final = True
            found.segment = measured.get(found.name) or found.segment
            found.synced = found.size
            self.dirty.pop(found.name, None)

    def failed(self) -> None:
        """The job has failed: it is not known what is there now, and the next load looks."""
        self.is_at_work = False
        self.is_loaded = False

    def entered(self) -> None:
        """A stream has entered the copy, which may have another folder."""
        for found in self.files.values():
            found.is_final = False
            if found.segment is not None:
                found.segment.folder = self.path

    def close(self) -> None:
        """Close all files. The primary sends incomplete files, and steps that no job has taken, again."""
        for found in self.files.values():
            self._close(found)
            if found.is_log and found.name.endswith(INCOMPLETE):
                # The next load removes it.
                self.is_loaded = False
        if self._steps:
            self._steps = []
            self.is_loaded = False


def _continues(found: CopyFile, offset: int) -> bool:
    """Whether a log file continues at this offset.

    A file that was found with its index may be longer at the primary: another owner, or a start of this node,
    has made the index.
    """
    if found.is_final or found.problem or found.size != offset:
        return False
    found.sealed = False
    return True
