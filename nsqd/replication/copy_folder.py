"""The copy of one topic's files: what is written to it at once, and what waits for the disk.

A copy has the very bytes of the home, at the same places of files of the same names, so it recovers as the
home would have. Nothing gets into it unchecked: what is appended carries its own checksums, a part of a file
that of its frame. What a crash may have left unsound at the end of a file is cut off before anybody is told
of the file.

What is quick happens at once: appends, and the small files of checkpoints. What waits for the disk - a file
that is sealed, renamed or removed, and every fsync - is a job for any thread.
"""

import re
from collections import deque
from pathlib import Path
from typing import Final

from xxhash import xxh3_64_intdigest

from nsqd.log import segment_index
from nsqd.log.disk import Disk
from nsqd.log.frames import published_ns
from nsqd.log.layout import (
    FILE_HEADER_BYTES,
    Append,
    NewerVersion,
    NotALog,
    decode_append,
    decode_file_header,
)
from nsqd.log.recovery import open_segment
from nsqd.log.segment import Segment
from nsqd.log.walk import FileWindow, walk
from nsqd.replication.frames import CopiedFile, is_copied_name
from nsqd.storage.slots import NAMES

# Copies whose file to append to is open.
_MOST_OPEN: Final = 256
_LOG_NAME: Final = re.compile(r"(\d+)(?:\.(\d+))?\.log")
_UNFINISHED: Final = (".tmp", ".new")
# Enough of an append to see when its first message was published.
_TIME_BYTES: Final = 16


class Mismatch(Exception):
    """What came does not fit to what is there, or is damaged; the text is one sentence for the home."""


class CopyFile:
    """One file of a copy. *segment* has the extent of a log file that is known append by append."""

    __slots__ = ("fd", "name", "salt", "sealed", "segment", "size", "synced")

    def __init__(self, name: str, size: int = 0, salt: int = 0, segment: Segment | None = None) -> None:
        self.name = name
        # All that is sound.
        self.size = size
        # As much of it is on the disk for sure.
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
                _sync(disk, path / name)
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
                        _sync(disk, path / slot)
                    disk.sync_folder(path)
                if name.endswith(".log"):
                    disk.remove(path / name.replace(".log", ".index"))
                disk.remove(path / name)


class CopyFolder:
    """The copy of one topic. All methods but those of jobs are called by one thread, and raise OSError."""

    def __init__(self, disk: Disk, path: Path, opened: "deque[tuple[CopyFolder, CopyFile]]") -> None:
        self.path = path
        self.files: dict[str, CopyFile] = {}
        # Files with more in them than was synced, and whether names have changed since.
        self.dirty: dict[str, CopyFile] = {}
        self.new_names = False
        self.loaded = False
        # The topic was deleted.
        self.gone = False
        # What is to be done by jobs, in order, and the job that does the first of it.
        self._steps: list[tuple[str, str, str]] = []
        self._job: CopyJob | None = None
        self._disk = disk
        self._opened = opened

    # --- what there is ---

    def load(self) -> None:
        """Find the files, and cut off what a crash has left unsound. For any thread, before all else."""
        try:
            names = self._disk.names(self.path)
        except FileNotFoundError:
            names = []
        self.close()
        self.files = {}
        self.dirty = {}
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
        segment = _empty(self._disk, path)
        if segment is None:
            self._disk.remove(path)
            return None
        indexed = segment_index.load(self._disk, segment, size)
        if not indexed:
            segment = _empty(self._disk, path) or segment
            _measure(self._disk, segment)
            if segment.size < size:
                self._disk.truncate(path, segment.size)
        found = CopyFile(name, segment.size, segment.header.salt, segment)
        found.sealed = indexed
        if not indexed:
            # Written in a life before this one: whether it is on the disk nobody knows.
            self.dirty[name] = found
        return found

    def told(self) -> tuple[CopiedFile, ...]:
        return tuple(one.told() for one in self.files.values() if not one.name.endswith(_UNFINISHED))

    def known(self, name: str) -> Segment | None:
        """The extent of a file of which every append was seen."""
        found = self.files.get(name)
        return None if found is None else found.segment

    # --- writing ---

    def append(self, name: str, offset: int, data: bytes) -> None:
        """Append whole appends to a log file, which is begun by them at 0. Raises Mismatch."""
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
        appends = _checked(name, data, at, offset, segment.header.salt)
        if found is None:
            found = self._create(name, segment)
        self._write(found, data)
        for append in appends:
            _grow(segment, append, data, offset)
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
            # What the part has in it is looked at when the file is whole.
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
        number, generation = _numbers(name)
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
        """Write behind what there is; a part that fails is cut off again."""
        try:
            if found.fd < 0:
                found.fd = self._disk.open_append(self.path / found.name)
                self._remember(found)
            self.dirty[found.name] = found
            self._disk.append(found.fd, [data])
        except OSError:
            self._close(found)
            # What is there now is not known; the next hello looks.
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
        """Give a file that is whole its name: that of a checkpoint at once. Raises Mismatch."""
        found = self.files.get(name)
        if found is None or not name.endswith(_UNFINISHED) or name.rpartition(".")[0] != other:
            raise Mismatch(f"{name} cannot be renamed to {other}")
        self._close(found)
        if found.is_log:
            self._steps.append(("rename", name, other))
            return
        (second,) = set(NAMES) - {other}
        # A power cut leaves one checkpoint at least.
        only = second not in self.files or second in self.dirty
        if only:
            _sync(self._disk, self.path / name)
        self._disk.rename(self.path / name, self.path / other)
        self._renamed(found, other)
        if only:
            self._disk.sync_folder(self.path)
            del self.dirty[other]

    def _renamed(self, found: CopyFile, other: str) -> None:
        old = self.files.get(other)
        if old is not None:
            self._close(old)
        del self.files[found.name]
        if self.dirty.pop(found.name, None) is not None:
            self.dirty[other] = found
        found.name = other
        self.files[other] = found
        self.new_names = True

    def seal(self, name: str, size: int) -> None:
        """Nothing comes to a file any more. Raises Mismatch."""
        found = self.files.get(name)
        if found is None or found.size != size or not found.is_log:
            has = "is not there" if found is None else f"has {found.size}"
            raise Mismatch(f"{name} ends with {size} bytes, and the copy of it {has}")
        self._close(found)
        found.sealed = True
        self._steps.append(("seal", name, ""))

    def remove(self, name: str) -> None:
        """The home has let go of a file; one that is not there is none."""
        self._steps.append(("remove", name, ""))

    def begin(self) -> CopyJob | None:
        """What waits for the disk now; one job at a time."""
        if self._job is not None or not self._steps:
            return None
        self._job = CopyJob(self, self._steps)
        self._steps = []
        return self._job

    def end(self, job: CopyJob) -> None:
        """The job has run, as far as it got."""
        self._job = None
        for step, name, other in job.steps:
            found = self.files.get(name)
            if found is None:
                continue
            if step == "remove":
                self._forget(found)
                continue
            if step == "rename":
                self._renamed(found, other)
            found.sealed = True
            found.segment = job.measured.get(found.name) or found.segment
            found.synced = found.size
            self.dirty.pop(found.name, None)

    def close(self) -> None:
        for found in self.files.values():
            self._close(found)


class CopySync:
    """What makes all that was written to some copies durable: :meth:`run` in any thread, then :meth:`end`."""

    def __init__(self, folders: list[CopyFolder]) -> None:
        self._files = [(folder, found, found.size) for folder in folders for found in folder.dirty.values()]
        self._names = [folder for folder in folders if folder.new_names]
        for folder in self._names:
            folder.new_names = False

    def run(self, disk: Disk) -> None:
        """Raises OSError."""
        for folder, found, _ in self._files:
            _sync(disk, folder.path / found.name)
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


def make_folders(disk: Disk, path: Path) -> None:
    """Make a folder and those above it, each of which is durable before there is anything in it."""
    missing = []
    while True:
        try:
            disk.names(path)
            break
        except FileNotFoundError:
            missing.append(path)
            path = path.parent
    for one in reversed(missing):
        disk.make_folder(one)
        disk.sync_folder(one.parent)


def measured(disk: Disk, path: Path) -> Segment | None:
    """The extent of a file that is whole; None when something in it is damaged. Raises OSError."""
    segment = _empty(disk, path)
    if segment is None:
        return None
    size = _measure(disk, segment)
    return segment if segment.size == size else None


def _empty(disk: Disk, path: Path) -> Segment | None:
    """The segment in a file, without its extent; None when it does not even begin as one."""
    number, generation = _numbers(path.name)
    try:
        return open_segment(disk, path, number, generation)
    except (NotALog, NewerVersion):
        return None


def _measure(disk: Disk, segment: Segment) -> int:
    """Give a segment the extent of all that is sound from its beginning on; returns the size of the file."""
    fd = disk.open_read(segment.path)
    try:
        window = FileWindow(disk, fd, str(segment.path))
        for place in walk(window, FILE_HEADER_BYTES, segment.header.salt, segment.next):
            append = place.append
            if append is None or place.mend or append.end > window.end:
                break
            data = window.cut(append.start, append.end)
            if not append.matches(data, segment.header.salt):
                break
            _grow(segment, append, data, append.start)
        segment.next = max(segment.next, segment.header.ends)
        return window.end
    finally:
        disk.close(fd)


def _checked(name: str, data: bytes, at: int, offset: int, salt: int) -> list[Append]:
    """The appends of *data*, which lies at *offset*, from the place *at* on. Raises Mismatch."""
    found: list[Append] = []
    view = memoryview(data)
    while at < len(data):
        try:
            append = decode_append(data, at, offset, salt)
        except NewerVersion as error:
            raise Mismatch(f"{name}: {error}") from error
        if append is None or not append.matches(view[append.start - offset : append.end - offset], salt):
            raise Mismatch(f"{name}: what came for the offset {offset + at} is damaged")
        found.append(append)
        at = append.end - offset
    return found


def _grow(segment: Segment, append: Append, data: bytes, base: int) -> None:
    """Add one append, whose data lies in *data* at its place less *base*."""
    if append.is_note:
        segment.grow(0, append.first, append.end, 0)
        segment.last_note = append.due_ns
        return
    start = append.start - base
    time_ns = published_ns(data[start : start + _TIME_BYTES]) if segment.wants_time else 0
    segment.grow(append.next - append.first, append.next, append.end, time_ns)


def _numbers(name: str) -> tuple[int, int]:
    match = _LOG_NAME.match(name)
    return (int(match[1]), int(match[2] or 0)) if match else (0, 0)


def _sync(disk: Disk, path: Path) -> None:
    """Make a file durable, if it is there. Raises OSError."""
    try:
        fd = disk.open_read(path)
    except FileNotFoundError:
        return
    try:
        disk.sync(fd)
    finally:
        disk.close(fd)
