"""How much of a copied file is sound: the checksum of each append is checked."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nsqd.log.disk import Disk
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

_LOG_NAME: Final = re.compile(r"(\d+)(?:\.(\d+))?\.log")
# Enough bytes of an append to see when its first message was published.
_TIME_BYTES: Final = 16


class Mismatch(Exception):
    """Received bytes do not fit the copy, or are damaged; the text is one sentence for the primary."""


# --- files on disk ---


@dataclass(slots=True)
class Survey:
    """A log file: its size, and the extent of all sound appends in it, also of those behind damage."""

    size: int
    next: int
    last_note: int = 0
    # There are sound appends behind damage.
    is_damaged: bool = False


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


def survey(disk: Disk, segment: Segment) -> Survey:
    """Give a segment the extent of its sound beginning, and look at what is behind that.

    Raises OSError and NewerVersion.
    """
    fd = disk.open_read(segment.path)
    try:
        window = FileWindow(disk, fd, str(segment.path))
        found = Survey(window.end, segment.next)
        is_sound = True
        for place in walk(window, FILE_HEADER_BYTES, segment.header.salt, segment.next):
            append = place.append
            if append is None or place.mend or append.end > window.end:
                is_sound = False
                continue
            data = window.cut(append.start, append.end)
            if not append.matches(data, segment.header.salt):
                is_sound = False
                continue
            found.next = append.next
            found.last_note = append.due_ns if append.is_note else found.last_note
            if is_sound:
                grow(segment, append, data, append.start)
            else:
                found.is_damaged = True
        segment.next = max(segment.next, segment.header.ends)
        found.next = max(found.next, segment.next)
        return found
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
