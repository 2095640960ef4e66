"""Checks a whole segment, including the fields that recovery trusts: data, both headers, the index."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nsqd.log import segment_index
from nsqd.log.disk import Disk
from nsqd.log.layout import FILE_HEADER_BYTES, mend_file_header
from nsqd.log.segment import Segment
from nsqd.log.walk import FileWindow, FoundAppend, Window, walk


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was written; *mend* is the right content at *offset*, if that is known."""

    path: Path
    offset: int
    text: str
    mend: bytes = b""

    def __str__(self) -> str:
        return f"{self.path} at {self.offset}: {self.text}"


def examine(disk: Disk, segment: Segment) -> Iterator[Finding]:
    """The errors in a segment that recovery has found, in order. Raises OSError."""
    yield from _header(disk, segment)
    if not index_is_usable(disk, segment) and _has_index(disk, segment):
        yield Finding(
            segment.index_path, 0, "the index cannot be used; the next start reads the whole segment"
        )
    fd = disk.open_read(segment.path)
    try:
        window = FileWindow(disk, fd, str(segment.path))
        window.end = min(window.end, segment.size)
        for place in walk(window, FILE_HEADER_BYTES, segment.header.salt, segment.first):
            yield from _state_of(segment, window, place)
    finally:
        disk.close(fd)


def index_is_usable(disk: Disk, segment: Segment) -> bool:
    """Whether the index of a segment is whole and for this state of the segment. Raises OSError."""
    probe = Segment(segment.folder, segment.number, segment.header, segment.generation)
    return segment_index.load(disk, probe, segment.size)


def _has_index(disk: Disk, segment: Segment) -> bool:
    return segment.index_path.name in disk.names(segment.folder)


def _header(disk: Disk, segment: Segment) -> Iterator[Finding]:
    fd = disk.open_read(segment.path)
    try:
        start = disk.read(fd, FILE_HEADER_BYTES, 0)
    finally:
        disk.close(fd)
    mended = mend_file_header(start)
    if mended != start:
        yield Finding(segment.path, 0, "one copy of the file header is damaged; the other is used", mended)


def _state_of(segment: Segment, window: Window, place: FoundAppend) -> Iterator[Finding]:
    append = place.append
    if append is None:
        size = place.end - place.start
        yield Finding(segment.path, place.start, f"{size} bytes cannot be read; what they held is lost")
        return
    if place.mend:
        yield Finding(segment.path, place.start, "one byte of a header is wrong; nothing is lost", place.mend)
    if append.matches(window.cut(append.start, append.end), segment.header.salt):
        return
    at = append.start
    if append.is_note:
        yield Finding(segment.path, at, f"note {append.due_ns} is damaged")
    else:
        count = append.next - append.first
        yield Finding(
            segment.path, at, f"{count} messages from sequence {append.first} on are damaged and lost"
        )
