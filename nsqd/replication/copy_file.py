"""The files of a copy: their known ranges, and their state after a stop, a crash or a power cut."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from nsqd.log import segment_index
from nsqd.log.disk import Disk, sync_file
from nsqd.log.frames import published_ns
from nsqd.log.layout import (
    FILE_HEADER_BYTES,
    Append,
    NewerVersion,
    NotALog,
    decode_append,
)
from nsqd.log.recovery import open_segment
from nsqd.log.segment import Segment
from nsqd.log.walk import FileWindow, walk
from nsqd.replication.fields import is_copied_name
from nsqd.replication.frames import CopiedFile
from nsqd.storage.checkpoint import BadCheckpoint, Sealed, with_serial
from nsqd.storage.slots import NAMES

_LOG_NAME: Final = re.compile(r"(\d+)(?:\.(\d+))?\.log")
# Enough bytes of an append to see when its first message was published.
_TIME_BYTES: Final = 16


class Mismatch(Exception):
    """Received bytes do not fit the copy, or are damaged; the text is one sentence for the primary."""


# --- files on disk ---


def measured(disk: Disk, path: Path) -> Segment | None:
    """The extent of a complete file; None when something in it is damaged or unknown. Raises OSError."""
    try:
        segment = opened(disk, path)
        found = None if segment is None else survey(disk, segment)
    except NewerVersion:
        return None
    return segment if segment is not None and found is not None and found.size == segment.size else None


def opened(disk: Disk, path: Path) -> Segment | None:
    """The segment in a file, without its extent; None when the file does not begin as a log does.

    Raises OSError and NewerVersion.
    """
    number, generation = numbers(path.name)
    try:
        return open_segment(disk, path, number, generation)
    except NotALog:
        return None


class Survey(NamedTuple):
    """The size of a log file, and the content of its last sound appends, also those after damage."""

    size: int
    next_position: int
    last_note: int
    is_damaged: bool


def survey(disk: Disk, segment: Segment) -> Survey:
    """Give a segment the extent of its sound beginning, and check the bytes after that.

    Raises OSError and NewerVersion.
    """
    fd = disk.open_read(segment.path)
    try:
        window = FileWindow(disk, fd, str(segment.path))
        end, note, is_sound, is_damaged = segment.next, 0, True, False
        for place in walk(window, FILE_HEADER_BYTES, segment.header.salt, segment.next):
            append = place.append
            if append is None or place.mend or append.end > window.end:
                is_sound = False
                continue
            data = window.cut(append.start, append.end)
            if not append.matches(data, segment.header.salt):
                is_sound = False
                continue
            end = append.next
            note = append.due_ns if append.is_note else note
            if is_sound:
                grow(segment, append, data, append.start)
            else:
                is_damaged = True
        segment.next = max(segment.next, segment.header.ends)
        return Survey(window.end, max(end, segment.next), note, is_damaged)
    finally:
        disk.close(fd)


# --- received bytes ---


def checked(name: str, data: bytes, at: int, offset: int, salt: int) -> list[Append]:
    """The appends of *data*, which lies at *offset* of the file, from index *at* on. Raises Mismatch."""
    found: list[Append] = []
    view = memoryview(data)
    while at < len(data):
        try:
            append = decode_append(data, at, offset, salt)
        except NewerVersion as error:
            raise Mismatch(f"{name}: {error}") from error
        if append is None or not append.matches(view[append.start - offset : append.end - offset], salt):
            raise Mismatch(f"{name}: the bytes for the offset {offset + at} are damaged")
        found.append(append)
        at = append.end - offset
    return found


def grow(segment: Segment, append: Append, data: bytes, base: int) -> None:
    """Add one append, whose bytes are in *data* at its offset minus *base*."""
    if append.is_note:
        segment.grow(0, append.first, append.end, 0)
        segment.last_note = append.due_ns
        return
    start = append.start - base
    time_ns = published_ns(data[start : start + _TIME_BYTES]) if segment.wants_time else 0
    segment.grow(append.next - append.first, append.next, append.end, time_ns)


def numbers(name: str) -> tuple[int, int]:
    match = _LOG_NAME.match(name)
    return (int(match[1]), int(match[2] or 0)) if match else (0, 0)


@dataclass(slots=True, eq=False)
class CopyFile:
    """One file of a copy. *segment* has the extent of a log file whose appends are all known."""

    name: str
    # Up to the first damage.
    size: int = 0
    salt: int = 0
    segment: Segment | None = None
    # With sound appends behind damage: first position, next position and newest note of the whole file.
    bounds: tuple[int, int, int] | None = None
    # Why no stream may enter a copy with this file, because its format is newer; else empty.
    problem: str = ""
    # Its index is on the disk, and describes it.
    is_indexed: bool = False
    # The primary appends nothing to it any more.
    is_sealed: bool = False
    # The descriptor for appending; -1 when it is not open.
    fd: int = -1

    @property
    def is_log(self) -> bool:
        return not self.name.startswith("checkpoint")

    @property
    def is_complete(self) -> bool:
        """Whether its name is not one of a file that is being sent."""
        return not self.name.endswith((".tmp", ".log.new"))

    def report(self) -> CopiedFile:
        """The file as it is reported to the primary."""
        bounds, segment = self.bounds, self.segment
        if bounds is None and segment is not None:
            bounds = (segment.first, segment.next, segment.last_note)
        return CopiedFile(self.name, self.salt, self.size, *(bounds or (0, 0, 0)))


NEW: Final = ".new"
# Complete checkpoints that get their final names after the next fsync, because the file with that name may be
# the only durable checkpoint of the topic.
UNSYNCED: Final = {name + NEW: name for name in NAMES}


def finish_files(disk: Disk, path: Path, topic: str) -> list[str] | None:
    """Give complete files in a folder their names, and remove incomplete ones.

    Returns the names, or None when there is no folder. Raises OSError.
    """
    names = []
    try:
        found = disk.names(path)
    except FileNotFoundError:
        return None
    for name in found:
        final = UNSYNCED.get(name, "")
        if final:
            if _is_checkpoint(disk, path / name, topic):
                disk.rewrite(path / name)
                sync_file(disk, path / name)
                disk.rename(path / name, path / final)
                disk.sync_folder(path)
                names.append(final)
            else:
                disk.remove(path / name)
        elif name.endswith(NEW) and is_copied_name(name):
            disk.remove(path / name)
        else:
            names.append(name)
    return sorted(set(names))


def _is_checkpoint(disk: Disk, path: Path, topic: str) -> bool:
    """Whether a file that a power cut may have damaged is a checkpoint; a newer version is one."""
    try:
        Sealed(disk.read_file(path), topic)
    except BadCheckpoint:
        return False
    except NewerVersion:
        return True
    return True


def newest_checkpoint(disk: Disk, path: Path, topic: str) -> tuple[str, bytes] | None:
    """The name of the checkpoint that counts, and its content under the serial number 0. Raises OSError.

    None if there is none, or if it has that number.
    """
    found: list[tuple[int, str, bytes]] = []
    for name in NAMES:
        try:
            content = disk.read_file(path / name)
            found.append((Sealed(content, topic).serial, name, content))
        except (FileNotFoundError, BadCheckpoint):
            continue
        except NewerVersion:
            return None
    if not found or (len(found) == 1 and not found[0][0]):
        return None
    _, name, content = max(found)
    return name, with_serial(content, 0)


def find_file(disk: Disk, path: Path) -> CopyFile | None:
    """A file of a copy; its torn end is cut off. None when nothing in it can be used. Raises OSError.

    A file without an index is rewritten, because an earlier sync of it may have failed. The caller syncs it.
    """
    fd = disk.open_read(path)
    try:
        size = disk.size(fd)
    finally:
        disk.close(fd)
    if path.name in NAMES:
        disk.rewrite(path)
        return CopyFile(path.name, size)
    found = CopyFile(path.name, size)
    try:
        segment = opened(disk, path)
        if segment is None:
            # Nothing in it can be checked without its header.
            disk.remove(path)
            return None
        found.salt = segment.header.salt
        found.is_indexed = segment_index.load(disk, segment, size)
        if found.is_indexed:
            found.segment = segment
            return found
        disk.rewrite(path)
        extent = survey(disk, segment)
    except NewerVersion as error:
        found.problem, found.salt = str(error), 0
        return found
    found.size, found.segment = segment.size, segment
    if extent.is_damaged:
        # The log's own recovery reads the bytes after the damage, so these stay until a stream replaces them.
        found.bounds = (segment.first, extent.next_position, extent.last_note)
    elif segment.size < size:
        disk.truncate(path, segment.size)
    return found
