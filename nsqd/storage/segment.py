"""A segment: one file of a topic's log, where its pages begin, and the reading of them.

Segments are numbered: ``00000001.log``, and ``00000001.2.log`` when it was compacted twice. `layout` has the
bytes.
"""

import errno
import os
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from nsqd.engine.block import TIMESTAMP_OFFSET, Block, parse_block
from nsqd.engine.gaps import Gap, Why
from nsqd.storage.disk import Disk
from nsqd.storage.layout import (
    APPEND_HEADER_BYTES,
    FILE_HEADER_BYTES,
    NOTE,
    Append,
    FileHeader,
    append_header,
    decode_append,
    find_append,
    mend_append,
)

# Appends are read back together in pages of at least this size.
PAGE_BYTES: Final = 256 << 10
_TIMESTAMP: Final = struct.Struct(">q")


def new_salt() -> int:
    return int.from_bytes(os.urandom(8), "little")


class Segment:
    """The extent of one segment, and where its pages begin, so that a sequence is found quickly."""

    __slots__ = (
        "folder",
        "generation",
        "header",
        "last_note",
        "messages",
        "next",
        "number",
        "page_firsts",
        "page_offsets",
        "page_times",
        "size",
        "synced",
    )

    def __init__(self, folder: Path, number: int, header: FileHeader, generation: int = 0) -> None:
        self.folder = folder
        self.number = number
        self.header = header
        # How often the segment was compacted.
        self.generation = generation
        self.messages = 0
        self.next = header.first
        self.size = FILE_HEADER_BYTES
        # The number of the newest note in it.
        self.last_note = 0
        # All below this sequence is durable.
        self.synced = header.first
        self.page_firsts: list[int] = []
        self.page_offsets: list[int] = []
        # When the first message of the page was published, in ns since 1970: the time index.
        self.page_times: list[int] = []

    def __repr__(self) -> str:
        return f"<Segment {self.path.name} {self.first}..{self.next} {self.size} bytes>"

    @property
    def first(self) -> int:
        return self.header.first

    @property
    def path(self) -> Path:
        return self.folder / f"{self._name}.log"

    @property
    def index_path(self) -> Path:
        return self.folder / f"{self._name}.index"

    @property
    def _name(self) -> str:
        return f"{self.number:08}.{self.generation}" if self.generation else f"{self.number:08}"

    @property
    def starts_page(self) -> bool:
        """Whether the next append begins a page."""
        return not self.page_offsets or self.size - self.page_offsets[-1] >= PAGE_BYTES

    def grow(self, messages: int, next_seq: int, end: int, time_ns: int) -> None:
        """One more append, of so many messages below *next_seq*, ends at the offset *end*."""
        if self.starts_page:
            self.page_firsts.append(self.next)
            self.page_offsets.append(self.size)
            self.page_times.append(time_ns or (self.page_times[-1] if self.page_times else 0))
        self.messages += messages
        self.next = next_seq
        self.size = end

    def stand_alone(self, disk: Disk) -> None:
        """Note in the file that it counts whatever became of the one before; durable with the next sync.

        Raises OSError.
        """
        self.header = replace(self.header, after_failure=True)
        fd = disk.open_write(self.path)
        try:
            disk.write_at(fd, self.header.encode(), 0)
        finally:
            disk.close(fd)

    def remove(self, disk: Disk) -> None:
        """Delete the files."""
        disk.remove(self.index_path)
        disk.remove(self.path)

    # --- reading ---

    @property
    def pages(self) -> int:
        return len(self.page_firsts)

    def page_of(self, seq: int) -> int:
        """The page in which *seq* lies if it lies in this segment."""
        return max(0, bisect_right(self.page_firsts, seq) - 1)

    def page_size(self, page: int) -> int:
        end = self.page_offsets[page + 1] if page + 1 < self.pages else self.size
        return end - self.page_offsets[page]

    def read_page(self, disk: Disk, page: int) -> list[Block | Gap]:
        """Blocks and gaps of a page, which together cover all its sequences, in order.

        Raises OSError when the file cannot be read just now.
        """
        last = self.page_firsts[page + 1] if page + 1 < self.pages else self.next
        reader = _PageReader(self, self.page_firsts[page], last)
        size, offset = self.page_size(page), self.page_offsets[page]
        try:
            data = _read(disk, self.path, size, offset)
        except FileNotFoundError:
            reader.missing(last, Why.REMOVED)
            return reader.found
        reader.read(data, offset, size)
        return reader.found

    def appends(self, disk: Disk, page: int) -> list[tuple[Append, bytes]]:
        """The whole appends of a page and their data, notes included. Raises OSError."""
        return [
            (place.append, place.data)
            for place in self.places(disk, page)
            if place.append is not None and place.whole
        ]

    def places(self, disk: Disk, page: int) -> Iterator["Place"]:
        """What lies in a page, byte after byte, damage included. Raises OSError."""
        offset, salt = self.page_offsets[page], self.header.salt
        data = _read(disk, self.path, self.page_size(page), offset)
        at = 0
        while at < len(data):
            append = decode_append(data, at, offset, salt)
            mended = append is None
            if append is None:
                append = mend_append(data, at, offset, salt)
            if append is None:
                append = find_append(data, at, offset, salt, self.page_firsts[page])
                mended = False
                end = len(data) if append is None else append.start - offset - APPEND_HEADER_BYTES
                yield Place(offset + at, offset + end, None, data[at:end])
                if append is None:
                    return
            piece = data[append.start - offset : append.end - offset]
            yield Place(
                append.start - APPEND_HEADER_BYTES,
                append.end,
                append,
                piece,
                mended=mended,
                whole=append.matches(piece, salt),
            )
            at = append.end - offset


class Place(NamedTuple):
    """An append at ``start <= offset < end``, or bytes that belong to none that can be recognised.

    *mended*: its header has one wrong byte in the file. *whole*: its data is what was written.
    """

    start: int
    end: int
    append: Append | None
    data: bytes
    mended: bool = False
    whole: bool = False


def _read(disk: Disk, path: Path, size: int, offset: int) -> bytes:
    """What the file has of these bytes. Raises OSError, also when it gives less than it has."""
    fd = disk.open_read(path)
    try:
        data = disk.read(fd, size, offset)
        if len(data) < size and disk.size(fd) >= offset + size:
            raise OSError(errno.EIO, "short read", str(path))
        return data
    finally:
        disk.close(fd)


class _PageReader:
    """Turns the bytes of a page into blocks, and what is missing into gaps."""

    def __init__(self, segment: Segment, first: int, last: int) -> None:
        self.found: list[Block | Gap] = []
        self._salt = segment.header.salt
        # What is missing between two appends of a compacted file was finished by everybody.
        self._between = Why.COMPACTED if segment.header.ends else Why.UNUSED
        self._next = first
        self._last = last
        # Appends that follow one another make one block.
        self._run: list[memoryview] = []
        self._run_first = first

    def read(self, data: bytes, base: int, size: int) -> None:
        """*data* lies at *base* in the file, which should have *size* bytes there."""
        view = memoryview(data)
        at = 0
        while at < len(data):
            append = decode_append(data, at, base, self._salt) or mend_append(data, at, base, self._salt)
            if append is None:
                append = find_append(data, at, base, self._salt, self._next)
                if append is None:
                    break
                self.missing(append.first, Why.DAMAGED)
            at = append.end - base
            if append.is_note:
                continue
            piece = view[append.start - base : at]
            if append.first > self._next:
                self.missing(append.first, self._between)
            if append.matches(piece, self._salt):
                if not self._run:
                    self._run_first = append.first
                self._run.append(piece)
                self._next = append.next
            else:
                self.missing(append.next, Why.DAMAGED)
        # Up to where the next page begins there is no more: damage, or the end of a compacted file.
        self.missing(self._last, self._between if at == size else Why.DAMAGED)

    def missing(self, end: int, why: Why) -> None:
        """Nothing can be read up to the sequence *end*."""
        if self._run:
            self.found.append(parse_block(self._run_first, b"".join(self._run)))
            self._run = []
        if end > self._next:
            self.found.append(Gap(self._next, end, why))
            self._next = end


class SegmentWriter:
    """The segment a topic appends to."""

    __slots__ = ("_disk", "fd", "segment")

    def __init__(self, disk: Disk, segment: Segment, path: Path | None = None) -> None:
        """Create the file, which may have another name until it is finished. Raises OSError."""
        self.segment = segment
        self._disk = disk
        self.fd = disk.create(path or segment.path)

    def append(self, blocks: list[Block], notes: list[tuple[int, bytes]]) -> None:
        """Write notes, each with its number, and behind them blocks.

        Raises OSError; then the segment must not be written to again.
        """
        segment = self.segment
        salt = segment.header.salt
        pieces: list[bytes] = [] if segment.page_offsets else [segment.header.encode()]
        position = blocks[0].first if blocks else segment.next
        for number, content in notes:
            # A note has no due time: its number stands there.
            pieces.append(append_header(salt, position, 0, number, content, NOTE))
            pieces.append(content)
        for block in blocks:
            data = block.data
            pieces.append(append_header(salt, block.first, block.next - block.first, block.due_ns, data))
            pieces.append(data)
        self._disk.append(self.fd, pieces)
        end = segment.size
        for number, content in notes:
            end += APPEND_HEADER_BYTES + len(content)
            segment.grow(0, position, end, 0)
            segment.last_note = number
        for block in blocks:
            end += APPEND_HEADER_BYTES + len(block.data)
            time_ns = published_ns(block.data) if segment.starts_page else 0
            segment.grow(block.next - block.first, block.next, end, time_ns)


def published_ns(data: bytes) -> int:
    """The time of the first message in frames."""
    return int(_TIMESTAMP.unpack_from(data, TIMESTAMP_OFFSET)[0])
