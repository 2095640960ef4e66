"""The index of a closed segment, beside it: where its pages begin and when they were published.

It is a shortcut, written behind: a segment whose index is absent, damaged or of another state of the file is
walked from append to append instead. One line of JSON would do; arrays are read a hundred times as fast.
"""

import struct
import sys
from array import array
from typing import Final

from xxhash import xxh3_64_intdigest

from nsqd.log.disk import Disk
from nsqd.log.layout import MUST_UNDERSTAND
from nsqd.log.segment import Segment

_MAGIC: Final = b"NSQIDX\x02\n"
_VERSION: Final = 2
# magic, version, flags, pages, salt of the segment, its size, next sequence, messages, newest note
_HEAD: Final = struct.Struct("<8sHHIQQQQQ")
_CHECK: Final = struct.Struct("<Q")


def write(disk: Disk, segment: Segment) -> None:
    """Write the index of a segment to which nothing is appended any more. Raises OSError."""
    pages = segment.pages
    head = _HEAD.pack(
        _MAGIC,
        _VERSION,
        0,
        pages,
        segment.header.salt,
        segment.size,
        segment.next,
        segment.messages,
        segment.last_note,
    )
    columns = (segment.page_firsts, segment.page_offsets, segment.page_times)
    content = head + b"".join(_little_endian(array("Q", column)).tobytes() for column in columns)
    disk.replace(segment.index_path, content + _CHECK.pack(xxh3_64_intdigest(content)), durable=False)


def load(disk: Disk, segment: Segment, file_size: int) -> bool:
    """Give an empty segment its extent from its index; False when that cannot be used. Raises OSError."""
    try:
        content = disk.read_file(segment.index_path)
    except FileNotFoundError:
        return False
    body = content[: -_CHECK.size]
    if len(body) < _HEAD.size or xxh3_64_intdigest(body) != _CHECK.unpack_from(content, len(body))[0]:
        return False
    magic, version, flags, pages, salt, size, next_seq, messages, last_note = _HEAD.unpack_from(body)
    if (magic, version, salt, size) != (_MAGIC, _VERSION, segment.header.salt, file_size):
        return False
    if flags & MUST_UNDERSTAND or len(body) != _HEAD.size + 3 * 8 * pages:
        return False
    numbers = array("Q")
    numbers.frombytes(body[_HEAD.size :])
    columns = _little_endian(numbers).tolist()
    segment.page_firsts = columns[:pages]
    segment.page_offsets = columns[pages : 2 * pages]
    segment.page_times = columns[2 * pages :]
    segment.size, segment.next = size, next_seq
    segment.messages, segment.last_note = messages, last_note
    return True


def _little_endian(numbers: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
