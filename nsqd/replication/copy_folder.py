"""The copy of one topic's files: what is written to it at once, and what waits for the disk.

A copy has the same bytes as the home, at the same places of files of the same names, so it recovers as the
home would have. Everything in it was checked: appends have their own checksums, a part of a file has that of
its frame. What a crash may have left unsound at the end of a file is cut off before anybody is told of the
file.

Quick work is done at once: appends, and the small files of checkpoints. Work that waits for the disk - a file
that is sealed, renamed or removed, and every fsync - is a job for any thread.
"""

from collections import deque
from pathlib import Path
from typing import Final, TypeAlias

from xxhash import xxh3_64_intdigest

from nsqd.log import segment_index
from nsqd.log.disk import Disk
from nsqd.log.layout import FILE_HEADER_BYTES, NewerVersion, NotALog, decode_file_header
from nsqd.log.segment import Segment
from nsqd.replication.durable import make_folders, sync_file
from nsqd.replication.frames import CopiedFile, is_copied_name
from nsqd.replication.sound import Mismatch, checked, grow, measure, numbers, opened
from nsqd.storage.slots import NAMES

# How many files are open for appending, in all copies.
_MOST_OPEN: Final = 256
_UNFINISHED: Final = (".tmp", ".new")

# Something to do for a job: "rename", "seal" or "remove", the file, and its new name.
Step: TypeAlias = tuple[str, str, str]


class CopyFile:
    """One file of a copy. *segment* has the extent of a log file whose appends are all known."""

    __slots__ = ("fd", "name", "salt", "sealed", "segment", "size", "synced")

    def __init__(self, name: str, size: int = 0, salt: int = 0, segment: Segment | None = None) -> None:
        self.name = name
        # The sound part of it.
        self.size = size
        # How much of it is certainly on the disk.
        self.synced = 0
        self.salt = salt
        self.segment = segment
        self.sealed = False
        self.fd = -1

    @property
    def is_log(self) -> bool:
        return not self.name.startswith("checkpoint")

    def told(self) -> CopiedFile:
        known = self.segment
        if known is None:
            return CopiedFile(self.name, self.salt, self.size)
        return CopiedFile(self.name, self.salt, self.size, known.first, known.next, known.last_note)


class CopyFolder:
    """The copy of one topic. All methods except those of jobs are called by one thread, and raise OSError."""

    def __init__(self, disk: Disk, path: Path, opened: "deque[tuple[CopyFolder, CopyFile]]") -> None:
        self.path = path
        self.files: dict[str, CopyFile] = {}
        # Files with more in them than was synced, and whether names have changed since the last sync.
        self.dirty: dict[str, CopyFile] = {}
        self.new_names = False
        self.loaded = False
        # The topic was deleted.
        self.gone = False
        # Steps to be done by jobs, in order, and whether a job is doing those that were taken before.
        self._steps: list[Step] = []
        self.is_at_work = False
        self._disk = disk
        self._opened = opened

    # --- what there is ---

    def load(self) -> None:
        """Find the files, and cut off what a crash has left unsound. For any thread, before all else.

        Steps that were not done are forgotten: the home says again what is to become of the files.
        """
        try:
            names = self._disk.names(self.path)
        except FileNotFoundError:
            names = []
        self.close()
        self.files = {}
        self.dirty = {}
        self._steps = []
        for name in names:
            if name.endswith(_UNFINISHED) and is_copied_name(name):
                self._disk.remove(self.path / name)
            elif is_copied_name(name):
                found = self._found(name)
                if found is not None:
                    self.files[name] = found
        self.loaded = True

    def _found(self, name: str) -> CopyFile | None:
        path = self.path / name
        fd = self._disk.open_read(path)
        try:
            size = self._disk.size(fd)
        finally:
            self._disk.close(fd)
        if name in NAMES:
            return CopyFile(name, size)
        segment = opened(self._disk, path)
        if segment is None:
            self._disk.remove(path)
            return None
        indexed = segment_index.load(self._disk, segment, size)
        if not indexed:
            segment = opened(self._disk, path) or segment
            measure(self._disk, segment)
            if segment.size < size:
                self._disk.truncate(path, segment.size)
        found = CopyFile(name, segment.size, segment.header.salt, segment)
        found.sealed = indexed
        if not indexed:
            # Written in an earlier life: nobody knows whether it is on the disk.
            self.dirty[name] = found
        return found

    def told(self) -> tuple[CopiedFile, ...]:
        return tuple(one.told() for one in self.files.values() if not one.name.endswith(_UNFINISHED))

    def known(self, name: str) -> Segment | None:
        """The extent of a file whose appends are all known; None for others."""
        found = self.files.get(name)
        return None if found is None else found.segment

    # --- writing ---

    def append(self, name: str, offset: int, data: bytes) -> None:
        """Append whole appends to a log file; those at offset 0 begin the file. Raises Mismatch."""
        found = self.files.get(name)
        at = 0
        if found is None:
            if offset:
                raise Mismatch(f"{name} goes on at {offset}, and there is no such file in the copy")
            segment = self._begun(name, data)
            at = FILE_HEADER_BYTES
        elif found.segment is None or found.sealed or found.size != offset:
            raise Mismatch(f"{name} goes on at {offset}, and the copy of it ends at {found.size}")
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
        """Write a part of a file as the home has it, damaged or not. Raises Mismatch."""
        if xxh3_64_intdigest(data) != check:
            raise Mismatch(f"a part of {name} was damaged on its way")
        found = self.files.get(name)
        if not offset:
            if found is not None:
                self._forget(found)
                self._disk.remove(self.path / name)
            found = self._create(name, None)
        elif found is None or found.sealed or offset > found.size or (found.is_log and offset != found.size):
            raise Mismatch(f"a part of {name} at {offset} does not join the copy of it")
        if found.is_log:
            self._write(found, data)
            # The contents of the part are looked at when the file is whole.
            found.segment = None
            found.size = offset + len(data)
            if not offset:
                found.salt = self._begun(name, data).header.salt
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
        make_folders(self._disk, self.path)
        found = CopyFile(name, 0, 0 if segment is None else segment.header.salt, segment)
        found.fd = self._disk.create(self.path / name)
        self._remember(found)
        self.files[name] = found
        self.new_names = True
        return found

    def _write(self, found: CopyFile, data: bytes) -> None:
        """Write behind what is there; a write that fails in part is cut off again."""
        try:
            if found.fd < 0:
                found.fd = self._disk.open_append(self.path / found.name)
                self._remember(found)
            self.dirty[found.name] = found
            self._disk.append(found.fd, [data])
        except OSError:
            self._close(found)
            # It is not known what is there now; the next hello looks.
            self.loaded = False
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
        while len(self._opened) > _MOST_OPEN:
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

    # --- what waits for the disk ---

    def rename(self, name: str, other: str) -> None:
        """Give a file that is whole its name; a checkpoint gets it at once. Raises Mismatch."""
        found = self.files.get(name)
        if found is None or not name.endswith(_UNFINISHED) or name.rpartition(".")[0] != other:
            raise Mismatch(f"{name} cannot be renamed to {other}")
        self._close(found)
        if found.is_log:
            self._steps.append(("rename", name, other))
            return
        (second,) = set(NAMES) - {other}
        # A power cut must leave at least one checkpoint.
        only = second not in self.files or second in self.dirty
        if only:
            sync_file(self._disk, self.path / name)
        self._disk.rename(self.path / name, self.path / other)
        self._renamed(found, other)
        if only:
            self._disk.sync_folder(self.path)
            # It may be missing, because a sync may have ended before the rename.
            self.dirty.pop(other, None)

    def _renamed(self, found: CopyFile, other: str) -> None:
        old = self.files.get(other)
        if old is not None:
            self._close(old)
        del self.files[found.name]
        self.dirty.pop(other, None)
        if self.dirty.pop(found.name, None) is not None:
            self.dirty[other] = found
        found.name = other
        self.files[other] = found
        self.new_names = True

    def seal(self, name: str, size: int) -> None:
        """Nothing is appended to a file any more. Raises Mismatch."""
        found = self.files.get(name)
        if found is None or found.size != size or not found.is_log:
            has = "is not there" if found is None else f"has {found.size}"
            raise Mismatch(f"{name} ends with {size} bytes, and the copy of it {has}")
        self._close(found)
        found.sealed = True
        self._steps.append(("seal", name, ""))

    def remove(self, name: str) -> None:
        """The home has let go of a file; one that does not exist is ignored."""
        self._steps.append(("remove", name, ""))

    @property
    def is_settled(self) -> bool:
        """Whether every file has its final name, and none waits to be sealed or removed."""
        return not self.is_at_work and not self._steps

    def begin(self) -> list[Step]:
        """Take the steps that wait for the disk now; none while a job is doing earlier ones."""
        if self.is_at_work:
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
            found.sealed = True
            found.segment = measured.get(found.name) or found.segment
            found.synced = found.size
            self.dirty.pop(found.name, None)

    def failed(self) -> None:
        """The job has failed: it is not known what is there now, and the next hello looks."""
        self.is_at_work = False
        self.loaded = False

    def close(self) -> None:
        for found in self.files.values():
            self._close(found)
