"""A segment: a data file of message frames as they lie on the wire, and an index of the appends beside it.

Data file ``<first sequence, 16 hex digits>.log``: frames, nothing else. A compacted segment has the number of
its generation before the ending: ``....1.log``.
Index file ``....index``: the magic, then one entry of 32 bytes per append, little-endian:

    uint64 end of the append in the data file
    uint64 sequence after its last message
    uint64 due time in ns since 1970 of a deferred message, else 0
    uint32 number of messages
    uint32 crc32 of the append's bytes followed by the 28 bytes above

An append is written to the data file first; without its entry it does not exist. One flipped bit costs the
append it lies in and nothing else.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from zlib import crc32

from nsqd.engine.block import FRAME_OVERHEAD, ID_SPAN, Block, frames_size, parse_block
from nsqd.engine.ids import SEQUENCE_BITS
from nsqd.storage.disk import Disk

MAGIC: Final = b"NSQIDX01"
_FIELDS: Final = struct.Struct("<QQQI")
_CRC: Final = struct.Struct("<I")
ENTRY_BYTES: Final = _FIELDS.size + _CRC.size
# Appends are read back together in pages of at least this size.
PAGE_BYTES: Final = 256 << 10
# Longer than an append usually is; a damaged entry of a longer one ends the segment.
_REPAIR_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One append: ``start <= offset < end`` in the data file, ``first <= seq < next``."""

    start: int
    end: int
    first: int
    next: int
    due_ns: int
    crc: int
    head: bytes

    def matches(self, data: bytes) -> bool:
        return crc32(self.head, crc32(data)) == self.crc


def encode_entry(block: Block, end: int) -> bytes:
    """The index entry of a block whose last byte lies before *end*."""
    head = _FIELDS.pack(end, block.next, block.due_ns, block.next - block.first)
    return head + _CRC.pack(crc32(head, crc32(block.data)))


class Segment:
    """The extent of one segment, and where its pages begin, so that a sequence is found quickly."""

    __slots__ = (
        "_page_entries",
        "_page_firsts",
        "_page_offsets",
        "entries",
        "first",
        "folder",
        "generation",
        "messages",
        "next",
        "size",
    )

    def __init__(self, folder: Path, first: int, generation: int = 0) -> None:
        self.folder = folder
        self.first = first
        # How often the segment was compacted.
        self.generation = generation
        self.messages = 0
        self.next = first
        self.size = 0
        self.entries = 0
        self._page_firsts: list[int] = []
        self._page_offsets: list[int] = []
        self._page_entries: list[int] = []

    @property
    def data_path(self) -> Path:
        return self.folder / f"{self._name}.log"

    @property
    def index_path(self) -> Path:
        return self.folder / f"{self._name}.index"

    @property
    def _name(self) -> str:
        return f"{self.first:016x}.{self.generation}" if self.generation else f"{self.first:016x}"

    @property
    def pages(self) -> int:
        return len(self._page_firsts)

    def grow(self, first: int, next_seq: int, end: int) -> None:
        """One more append, of the messages ``first <= seq < next_seq``, ends at *end*."""
        self.messages += next_seq - first
        if not self._page_offsets or self.size - self._page_offsets[-1] >= PAGE_BYTES:
            self._page_firsts.append(first)
            self._page_offsets.append(self.size)
            self._page_entries.append(self.entries)
        self.entries += 1
        self.next = next_seq
        self.size = end

    def node_id(self) -> int | None:
        """Of the node that wrote it, as the id of its first message says; None when that is damaged."""
        try:
            return int(_read(self.data_path, *ID_SPAN), 16) >> SEQUENCE_BITS
        except ValueError:
            return None

    def remove(self, disk: Disk) -> None:
        """Delete the files; the index first, without which the data does not count."""
        disk.remove(self.index_path)
        disk.remove(self.data_path)

    def page_of(self, seq: int) -> int:
        """The page in which *seq* lies if it lies in this segment."""
        low, high = 0, len(self._page_firsts)
        while high - low > 1:
            middle = (low + high) // 2
            if self._page_firsts[middle] <= seq:
                low = middle
            else:
                high = middle
        return low

    def page_size(self, page: int) -> int:
        end = self._page_offsets[page + 1] if page + 1 < self.pages else self.size
        return end - self._page_offsets[page]

    def appends(self, page: int) -> Iterator[tuple[Entry, bytes]]:
        """The index entry and the bytes of each append of a page. Raises OSError."""
        start = self._page_offsets[page]
        data = _read(self.data_path, start, self.page_size(page))
        entry = self._page_entries[page]
        last = self._page_entries[page + 1] if page + 1 < self.pages else self.entries
        raw = _read(self.index_path, len(MAGIC) + entry * ENTRY_BYTES, (last - entry) * ENTRY_BYTES)
        offset = start
        for at in range(0, len(raw), ENTRY_BYTES):
            found = decode_entry(raw, at, offset)
            piece = data[found.start - start : max(0, found.end - start)]
            if not found.matches(piece):
                found = repair(found, data[offset - start :]) or found
                piece = data[found.start - start : max(0, found.end - start)]
            yield found, piece
            offset = found.end

    def read_page(self, page: int) -> tuple[list[Block], list[Entry]]:
        """The blocks of a page, without damaged appends, and the entries of the damaged ones.

        Raises OSError when the files cannot be read.
        """
        blocks: list[Block] = []
        damaged: list[Entry] = []
        pieces: list[bytes] = []
        first = next_seq = -1
        for entry, data in self.appends(page):
            if not entry.matches(data):
                damaged.append(entry)
                continue
            if pieces and entry.first != next_seq:
                blocks.append(parse_block(first, b"".join(pieces)))
                pieces = []
            if not pieces:
                first = entry.first
            pieces.append(data)
            next_seq = entry.next
        if pieces:
            blocks.append(parse_block(first, b"".join(pieces)))
        return blocks, damaged


class SegmentWriter:
    """The segment a topic appends to."""

    __slots__ = ("_data", "_disk", "_index", "segment")

    def __init__(self, disk: Disk, segment: Segment, index_path: Path | None = None) -> None:
        """Create the two files of an empty segment; the index may have another name. Raises OSError."""
        self.segment = segment
        self._disk = disk
        self._data = disk.open_append(segment.data_path)
        try:
            self._index = disk.open_append(index_path or segment.index_path)
        except OSError:
            disk.close(self._data)
            disk.remove(segment.data_path)
            raise
        try:
            disk.append(self._index, [MAGIC])
        except OSError:
            self.close()
            segment.remove(disk)
            raise

    def append(self, blocks: list[Block]) -> None:
        """Write blocks. Raises OSError; then the segment must not be written to again."""
        segment = self.segment
        end = segment.size
        data: list[bytes] = []
        entries: list[bytes] = []
        ends: list[int] = []
        for block in blocks:
            end += len(block.data)
            data.append(block.data)
            ends.append(end)
            entries.append(encode_entry(block, end))
        self._disk.append(self._data, data)
        self._disk.append(self._index, entries)
        for block, end in zip(blocks, ends, strict=True):
            segment.grow(block.first, block.next, end)

    def descriptors(self) -> tuple[int, int]:
        """Duplicates of the two files, for somebody else to sync and close."""
        data = self._disk.duplicate(self._data)
        try:
            return data, self._disk.duplicate(self._index)
        except OSError:
            self._disk.close(data)
            raise

    def close(self) -> None:
        self._disk.close(self._data)
        self._disk.close(self._index)


def decode_entry(raw: bytes, at: int, start: int) -> Entry:
    """The entry that lies *at* this place in an index, of an append that begins at *start*."""
    head = raw[at : at + _FIELDS.size]
    end, next_seq, due_ns, count = _FIELDS.unpack(head)
    (crc,) = _CRC.unpack_from(raw, at + _FIELDS.size)
    return Entry(start, end, next_seq - count, next_seq, due_ns, crc, head)


def repair(entry: Entry, data: bytes) -> Entry | None:
    """The entry as it was before one of its numbers was damaged, if the frames in *data* can tell.

    *data* begins where the append does. Else the appends after it would be looked for in the wrong place.
    """
    count = entry.next - entry.first
    if 0 < count <= len(data) // FRAME_OVERHEAD:
        size = frames_size(data, count)
        head = _FIELDS.pack(entry.start + size, entry.next, entry.due_ns, count)
        mended = replace(entry, end=entry.start + size, head=head)
        if size and mended.matches(data[:size]):
            return mended
    return None


def recover(segment: Segment) -> tuple[list[Entry], bool]:
    """Read an empty segment's extent from its files, as a crash may have left them.

    The segment grows up to its last whole append. Returns its entries with a due time, and whether something
    was cut off its end. Damage in the middle is left for the reader to find. Raises OSError.
    """
    try:
        raw = segment.index_path.read_bytes()
    except FileNotFoundError:
        raw = b""
    size = segment.data_path.stat().st_size
    entries: list[Entry] = []
    with segment.data_path.open("rb") as data:
        start = 0
        # The magic is not insisted on: a flipped bit in it must not cost the file.
        for at in range(len(MAGIC), len(raw) - ENTRY_BYTES + 1, ENTRY_BYTES):
            entry = decode_entry(raw, at, start)
            if not entry.start < entry.end <= size:
                mended = repair(entry, os.pread(data.fileno(), _REPAIR_BYTES, start))
                if mended is None:
                    break
                entry = mended
            elif entry.next <= entry.first:
                break
            entries.append(entry)
            start = entry.end
        # The end is what a power cut damages: appends whose blocks never reached the disk.
        while entries and not entries[-1].matches(_pread(data.fileno(), entries[-1])):
            entries.pop()
    for entry in entries:
        segment.grow(entry.first, entry.next, entry.end)
    whole = len(MAGIC) + len(entries) * ENTRY_BYTES == len(raw) and segment.size == size
    return [entry for entry in entries if entry.due_ns], not whole


def _pread(fd: int, entry: Entry) -> bytes:
    return os.pread(fd, entry.end - entry.start, entry.start)


def _read(path: Path, start: int, size: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, size, start)
    finally:
        os.close(fd)
