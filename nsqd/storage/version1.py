"""Taking over the segments of version 1: data and index in two files, checked with crc32.

Data file ``<first sequence, 16 hex digits>.log``, or ``....1.log`` when compacted: frames, nothing else.
Index beside it: a magic of 8 bytes, then 32 bytes an append, little-endian: uint64 end in the data file,
uint64 sequence after the last message, uint64 due time or 0, uint32 number of messages, uint32 crc32 of the
data followed by those 28 bytes.

Each segment is rewritten into a segment of version 2, synced, and then removed. Interrupted at any point, the
next start goes on with the segments that are left.
"""

import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

from nsqd.engine.block import ID_SPAN, Block, frames_size, parse_block
from nsqd.engine.ids import SEQUENCE_BITS
from nsqd.storage.disk import Disk
from nsqd.storage.layout import FileHeader
from nsqd.storage.recovery import open_segment
from nsqd.storage.segment import Segment, SegmentWriter, new_salt

_NAME: Final = re.compile(r"([0-9a-f]{16})(?:\.(\d+))?\.(?:log|index)")
_MAGIC_BYTES: Final = 8
_FIELDS: Final = struct.Struct("<QQQI")
_ENTRY: Final = struct.Struct("<QQQII")
_REPAIR_BYTES: Final = 16 << 20
# Blocks are gathered into appends of this size.
_BATCH_BYTES: Final = 1 << 20


def convert(disk: Disk, folder: Path, names: list[str], warn: Callable[[str], None]) -> bool:
    """Rewrite the segments of version 1 among *names*; whether there were any. Raises OSError."""
    segments: dict[int, list[str]] = {}
    matches = [match for name in names if (match := _NAME.fullmatch(name))]
    # Of several generations the last counts, so the others go first.
    for match in sorted(matches, key=lambda match: (int(match[2] or 0), match[0])):
        segments.setdefault(int(match[1], 16), []).append(match[0].rpartition(".")[0])
    if not segments:
        return False
    number = max((int(name[:8]) for name in names if re.fullmatch(r"\d{8}\.log", name)), default=0)
    # The last thing an interrupted start did may have been to finish a rewritten segment.
    last = open_segment(disk, folder / f"{number:08}.log", number, 0) if number else None
    for first, stems in sorted(segments.items()):
        newest = _newest(stems, names)
        if newest is not None and (last is None or last.first != first):
            number += 1
            _convert(disk, folder, newest, number, warn)
        # Only now, and before the next: until here another start would begin with this one again.
        for stem in dict.fromkeys(stems):
            disk.remove(folder / f"{stem}.log")
            disk.remove(folder / f"{stem}.index")
    disk.sync_folder(folder)
    return True


def _newest(stems: list[str], names: list[str]) -> str | None:
    """The name of the generation that counts; a compacted one without an index did not come to its end."""
    whole = [one for one in stems if f"{one}.log" in names and ("." not in one or f"{one}.index" in names)]
    return whole[-1] if whole else None


def _convert(disk: Disk, folder: Path, stem: str, number: int, warn: Callable[[str], None]) -> None:
    path = folder / f"{stem}.log"
    data = disk.read_file(path)
    try:
        index = disk.read_file(folder / f"{stem}.index")
    except FileNotFoundError:
        index = b""
    blocks = list(_blocks(path, data, index, warn))
    if not blocks:
        return
    try:
        origin = int(data[ID_SPAN[0] : sum(ID_SPAN)], 16) >> SEQUENCE_BITS
    except ValueError:
        origin = 0
    # The name, not the first block: a restart knows the segment by it. What it follows is not known, for
    # version 1 did not say it.
    header = FileHeader(int(stem[:16], 16), 0, new_salt(), origin)
    _write(disk, Segment(folder, number, header), blocks)


def _write(disk: Disk, segment: Segment, blocks: list[Block]) -> None:
    """Write the blocks under another name, and give the file its own when it is on the disk."""
    unfinished = segment.path.with_name(segment.path.name + ".new")
    writer = SegmentWriter(disk, segment, unfinished)
    try:
        batch: list[Block] = []
        size = 0
        for block in blocks:
            batch.append(block)
            size += len(block.data)
            if size >= _BATCH_BYTES:
                writer.append(batch, [])
                batch, size = [], 0
        if batch:
            writer.append(batch, [])
        disk.sync(writer.fd)
    finally:
        disk.close(writer.fd)
    disk.rename(unfinished, segment.path)
    disk.sync_folder(segment.folder)


def _blocks(path: Path, data: bytes, index: bytes, warn: Callable[[str], None]) -> Iterator[Block]:
    """The whole appends of a segment, deferred ones with their due time."""
    start = 0
    for at in range(_MAGIC_BYTES, len(index) - _ENTRY.size + 1, _ENTRY.size):
        end, next_seq, due_ns, count, crc = _ENTRY.unpack_from(index, at)
        head = index[at : at + _FIELDS.size]
        piece = data[start:end]
        if not start < end <= len(data) or crc32(head, crc32(piece)) != crc:
            # Perhaps only the end is wrong; the frames know where it is.
            size = frames_size(data[start : start + _REPAIR_BYTES], count) if 0 < count < len(data) else 0
            head = _FIELDS.pack(start + size, next_seq, due_ns, count)
            if size and crc32(head, crc32(data[start : start + size])) == crc:
                end, piece = start + size, data[start : start + size]
            elif start < end <= len(data):
                warn(f"{path}: checksum mismatch at {start}, {count} messages are lost")
                start = end
                continue
            else:
                warn(f"{path}: the end was not written completely, {len(data) - start} bytes are left out")
                return
        yield parse_block(next_seq - count, piece, due_ns=due_ns)
        start = end
