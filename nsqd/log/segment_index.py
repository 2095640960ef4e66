"""The index file of a closed segment: the start of each page, and its publish time.

The index only saves time, and is written later than the segment. If it is absent, damaged or of another state
of the file, the segment is walked from append to append instead. It is not JSON, because arrays are read a
hundred times as fast.

After the arrays, the index of a compacted file lists the messages of the file. The file has no other message
between its first and its last.
"""

import struct
import sys
from array import array
from collections.abc import Iterable
from heapq import nlargest
from typing import Final

from xxhash import xxh3_64_intdigest

from nsqd.log.disk import Disk
from nsqd.log.gaps import Gap, Why
from nsqd.log.pages import read_page
from nsqd.log.ranges import Ranges, merged, without
from nsqd.log.segment import Segment

_MAGIC: Final = b"NSQIDX\x02\n"
_VERSION: Final = 2
# magic, version, flags, pages, salt of the segment, its size, next sequence, messages, newest note
_HEAD: Final = struct.Struct("<8sHHIQQQQQ")
_CHECK: Final = struct.Struct("<Q")
_NUMBER_BYTES: Final = 8
# The only flag: with any other there may be more behind the arrays, of unknown length.
_HAS_RANGES: Final = 0x0100


def write(disk: Disk, segment: Segment, kept: Ranges | None = None) -> None:
    """Write the index of a segment to which nothing is appended any more. Raises OSError.

    *kept* are the messages of a compacted segment.
    """
    pages = segment.pages
    head = _HEAD.pack(
        _MAGIC,
        _VERSION,
        0 if kept is None else _HAS_RANGES,
        pages,
        segment.header.salt,
        segment.size,
        segment.next,
        segment.messages,
        segment.last_note,
    )
    columns = [segment.page_firsts, segment.page_offsets, segment.page_times]
    columns += [[start for start, _ in kept or []], [end for _, end in kept or []]]
    content = head + b"".join(_little_endian(array("Q", column)).tobytes() for column in columns)
    disk.replace(segment.index_path, content + _CHECK.pack(xxh3_64_intdigest(content)), durable=False)


def load(disk: Disk, segment: Segment, file_size: int) -> bool:
    """Give an empty segment its extent from its index; False when that cannot be used. Raises OSError."""
    body = _whole(disk, segment, file_size)
    if body is None:
        return False
    _, _, _, pages, _, size, next_seq, messages, last_note = _HEAD.unpack_from(body)
    columns = _numbers(body, 0, 3 * pages)
    segment.page_firsts = columns[:pages]
    segment.page_offsets = columns[pages : 2 * pages]
    segment.page_times = columns[2 * pages :]
    segment.size, segment.next = size, next_seq
    segment.messages, segment.last_note = messages, last_note
    return True


def stored_ranges(disk: Disk, segment: Segment) -> Ranges | None:
    """The messages of a compacted segment; None when its index does not list them. Raises OSError."""
    body = _whole(disk, segment, segment.size)
    if body is None:
        return None
    _, _, flags, pages, *_ = _HEAD.unpack_from(body)
    if not flags & _HAS_RANGES:
        return None
    numbers = _numbers(body, 3 * pages, (len(body) - _HEAD.size) // _NUMBER_BYTES)
    half = len(numbers) // 2
    return list(zip(numbers[:half], numbers[half:], strict=True))


def _whole(disk: Disk, segment: Segment, file_size: int) -> bytes | None:
    """The index without its checksum, if it is whole and for this state of the file. Raises OSError."""
    try:
        content = disk.read_file(segment.index_path)
    except FileNotFoundError:
        return None
    body = content[: -_CHECK.size]
    if len(body) < _HEAD.size or xxh3_64_intdigest(body) != _CHECK.unpack_from(content, len(body))[0]:
        return None
    magic, version, flags, pages, salt, size, *_ = _HEAD.unpack_from(body)
    if (magic, version, salt, size) != (_MAGIC, _VERSION, segment.header.salt, file_size):
        return None
    more = len(body) - _HEAD.size - 3 * pages * _NUMBER_BYTES
    fits = more >= 0 and more % (2 * _NUMBER_BYTES) == 0 if flags & _HAS_RANGES else more == 0
    return None if flags & ~_HAS_RANGES or not fits else body


def _numbers(body: bytes, first: int, end: int) -> list[int]:
    """The numbers ``first <= place < end`` behind the head."""
    numbers = array("Q")
    numbers.frombytes(body[_HEAD.size + first * _NUMBER_BYTES : _HEAD.size + end * _NUMBER_BYTES])
    return _little_endian(numbers).tolist()


def _little_endian(numbers: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


# If there are more holes, only so many are reported, the largest, because the channel stores them.
MAX_HOLES: Final = 10_000


def holes_in(disk: Disk, segment: Segment) -> Ranges:
    """The sequences missing in a compacted segment; none when it cannot be read just now. For any thread.

    Damaged messages do not count as missing: the channel that must deliver them finds the damage.
    """
    try:
        kept = stored_ranges(disk, segment)
        if kept is not None:
            return without([(segment.first, segment.next)], kept)
        # Its index was lost.
        return [
            (found.start, found.end)
            for page in range(segment.pages)
            for found in read_page(disk, segment, page)
            if isinstance(found, Gap) and found.why is Why.COMPACTED
        ]
    except OSError:
        return []


def largest(holes: Iterable[tuple[int, int]]) -> Ranges:
    """The largest *holes*, sorted and merged."""
    return merged(nlargest(MAX_HOLES, holes, key=lambda hole: hole[1] - hole[0]))
