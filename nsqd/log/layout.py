"""Version 2 of the log files, byte by byte; docs/storage-format.md has the picture.

All numbers are little-endian. A file is two copies of the file header, then appends. Each append is a
header of 48 bytes and its data: message frames in wire format, or a note. Both checksums of an append are
seeded with the salt of its file. So neither a message body nor leftover bytes of another file can be
mistaken for an append.
"""

import struct
from dataclasses import dataclass
from typing import Final

from xxhash import xxh3_64_intdigest

from nsqd.log.frames import WallNs
from nsqd.log.starts import Starts

VERSION: Final = 2

# --- the file header ---

FILE_MAGIC: Final = b"NSQLOG\x02\n"
# The prefix of every version's magic; the version number follows.
_FAMILY: Final = b"NSQLOG"
# magic, version, flags, size of this header, first sequence, follows, notes, ends, salt, origin
_FILE: Final = struct.Struct("<8sHHIQQQQQQ")
_CHECK: Final = struct.Struct("<Q")
_COPY_BYTES: Final = _FILE.size + _CHECK.size
FILE_HEADER_BYTES: Final = 2 * _COPY_BYTES
# The upper half of a salt is the same in all files of a log.
LOG_ID_SHIFT: Final = 32


class NewerVersion(Exception):
    """The file was written by a version of nsqd that this one does not know; the text says where."""


class NotALog(Exception):
    """Neither copy of the file header can be read."""


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The metadata in a file header.

    *follows* is where the log ended when the file was begun. Sequences between the end of the previous file
    and *follows* were once stored; sequences from *follows* to *first* were never used. It is 0 when there
    was no previous file or this is not known. *notes* is how many notes were written before. *ends* is set in
    a compacted file: messages missing below it were finished on all channels. *origin* is the id of the node
    that wrote the log.
    """

    first: int
    follows: int
    salt: int
    origin: int
    notes: int = 0
    ends: int = 0

    @property
    def log_id(self) -> int:
        """Distinguishes the log from an earlier log of the same name."""
        return self.salt >> LOG_ID_SHIFT

    def encode(self) -> bytes:
        """Both copies."""
        fields = _FILE.pack(
            FILE_MAGIC,
            VERSION,
            0,
            FILE_HEADER_BYTES,
            self.first,
            self.follows,
            self.notes,
            self.ends,
            self.salt,
            self.origin,
        )
        return 2 * (fields + _CHECK.pack(xxh3_64_intdigest(fields)))


def decode_file_header(data: bytes) -> FileHeader:
    """The header of a file that begins with *data*. Raises NotALog and NewerVersion."""
    for at in (0, _COPY_BYTES):
        fields = data[at : at + _FILE.size]
        if len(data) < at + _COPY_BYTES:
            break
        if xxh3_64_intdigest(fields) != _CHECK.unpack_from(data, at + _FILE.size)[0]:
            continue
        magic, version, flags, _, first, follows, notes, ends, salt, origin = _FILE.unpack(fields)
        if magic != FILE_MAGIC or version != VERSION or flags & MUST_UNDERSTAND:
            raise NewerVersion(f"log format {version} with flags {flags:#06x} is not known")
        return FileHeader(first, follows, salt, origin, notes, ends)
    version = data[len(_FAMILY) : len(_FAMILY) + 1]
    if data.startswith(_FAMILY) and version > bytes([VERSION]):
        raise NewerVersion(f"log format {version[0]} is not known")
    raise NotALog("neither copy of the file header is whole")


def mend_file_header(data: bytes) -> bytes:
    """The first bytes that a file beginning with *data* should have: both copies whole. Raises NotALog."""
    for at in (0, _COPY_BYTES):
        copy = data[at : at + _COPY_BYTES]
        if len(copy) == _COPY_BYTES and copy[_FILE.size :] == _CHECK.pack(
            xxh3_64_intdigest(copy[: _FILE.size])
        ):
            return 2 * copy
    raise NotALog("neither copy of the file header is whole")


# --- the header of an append ---

_SIZE: Final = struct.Struct("<H")
_SIZE_OFFSET: Final = 6

APPEND_MAGIC: Final = b"\xb5NSQ"
# magic, flags, size of the header, number of messages, size of the data, first sequence, due time in ns
# since 1970 or 0, checksum of what lies between this header and the next
_APPEND: Final = struct.Struct("<4sHHIIQQQ")
# The size of the header as this version writes it. The checksum comes last; a later version may put fields
# before it, which this version skips.
APPEND_HEADER_BYTES: Final = _APPEND.size + _CHECK.size
MAX_HEADER_BYTES: Final = 4096
# Up to this length a header with one wrong byte is corrected. This version writes 48 bytes.
MAX_MENDED_BYTES: Final = 128

# A flag of the lower byte changes the meaning of the data: a reader that does not know it must stop.
MUST_UNDERSTAND: Final = 0x00FF
# The data is a note on the topic or one of its channels, not messages.
NOTE: Final = 0x0001
# Every body begins with the extension that has the message's headers: see `headers`.
MESSAGE_HEADERS: Final = 0x0002
_KNOWN_FLAGS: Final = NOTE | MESSAGE_HEADERS


def append_header(salt: int, first: int, count: int, due_ns: int, data: bytes, flags: int = 0) -> bytes:
    """The header that is written before *data*."""
    check = xxh3_64_intdigest(data, salt)
    fields = _APPEND.pack(APPEND_MAGIC, flags, APPEND_HEADER_BYTES, count, len(data), first, due_ns, check)
    return fields + _CHECK.pack(xxh3_64_intdigest(fields, salt))


class Append:
    """One append: its data lies at ``start <= offset < end`` and holds ``first <= seq < next``.

    Its header lies before that, from *begin* on.
    """

    __slots__ = ("begin", "check", "due_ns", "end", "first", "flags", "next", "start")

    def __init__(
        self, flags: int, begin: int, start: int, end: int, first: int, count: int, due_ns: WallNs, check: int
    ) -> None:
        self.flags = flags
        self.begin = begin
        self.start = start
        self.end = end
        self.first = first
        self.next = first + count
        self.due_ns = due_ns
        self.check = check

    def __repr__(self) -> str:
        return f"<Append {self.first}..{self.next} at {self.start}..{self.end}>"

    @property
    def is_note(self) -> bool:
        return bool(self.flags & NOTE)

    @property
    def has_headers(self) -> bool:
        return bool(self.flags & MESSAGE_HEADERS)

    def matches(self, data: bytes | memoryview, salt: int) -> bool:
        """Whether *data* equals the written data."""
        return len(data) == self.end - self.start and xxh3_64_intdigest(data, salt) == self.check


def decode_append(data: bytes, at: int, base: int, salt: int) -> Append | None:
    """The append whose header is at the offset *at* of *data*; None when there is none or it is damaged.

    *base* is the file offset of *data*; the append's offsets are those of the file. Raises NewerVersion.
    """
    if at + APPEND_HEADER_BYTES > len(data):
        return None
    magic, flags, header_bytes, count, size, first, due_ns, check = _APPEND.unpack_from(data, at)
    if magic != APPEND_MAGIC or not APPEND_HEADER_BYTES <= header_bytes <= MAX_HEADER_BYTES:
        return None
    seal = at + header_bytes - _CHECK.size
    if seal + _CHECK.size > len(data):
        return None
    if xxh3_64_intdigest(data[at:seal], salt) != _CHECK.unpack_from(data, seal)[0]:
        return None
    if flags & MUST_UNDERSTAND & ~_KNOWN_FLAGS:
        raise NewerVersion(f"an append with flags {flags:#06x} at {base + at} is not known")
    start = base + at + header_bytes
    return Append(flags, base + at, start, start + size, first, count, due_ns, check)


def only_frame(data: bytes, at: int, end: int, seq: int, salt: int, flags: int) -> bytes | None:
    """The frame of message *seq*, if the append from *at* to *end* of *data* is whole and has only it.

    Only for a reader that knows which append it expects: then the checksum of the data vouches for the
    header. An append with other *flags* does not count.
    """
    if end - at < APPEND_HEADER_BYTES or end > len(data):
        return None
    magic, its_flags, header_bytes, count, size, first, _, check = _APPEND.unpack_from(data, at)
    start = at + header_bytes
    if magic != APPEND_MAGIC or its_flags != flags or count != 1 or first != seq or start + size != end:
        return None
    frame = data[start:end]
    return frame if xxh3_64_intdigest(frame, salt) == check else None


def find_starts(data: bytes, base: int, first: int) -> Starts | None:
    """Where appends seem to start in *data*, which lies at *base* and begins with one; None when unclear.

    No checksum is verified: the reader must check the append that it then reads.
    """
    starts = Starts(first, base)
    at = 0
    unpack_from = _APPEND.unpack_from
    while at + APPEND_HEADER_BYTES <= len(data):
        magic, _, header_bytes, _, size, first, _, _ = unpack_from(data, at)
        if magic != APPEND_MAGIC or header_bytes < APPEND_HEADER_BYTES:
            return None
        at += header_bytes + size
        starts.add(first, base + at)
    return starts if at == len(data) else None


def mended_header(data: bytes, at: int, salt: int) -> bytes:
    """The corrected header at this offset, if exactly one byte of it is wrong; else empty.

    A checksum of 64 bits is enough to find the byte, so the append behind a damaged header is not lost. It
    costs up to 256 checksums for each byte of the header, so headers above `MAX_MENDED_BYTES` stay damaged.
    """
    if at + APPEND_HEADER_BYTES > len(data) or not any(data[at : at + APPEND_HEADER_BYTES]):
        return b""
    # The length may be the wrong byte, so it is believed only up to a bound.
    (length,) = _SIZE.unpack_from(data, at + _SIZE_OFFSET)
    mended = _mended(data[at : at + APPEND_HEADER_BYTES], APPEND_HEADER_BYTES, salt)
    if not mended and APPEND_HEADER_BYTES < length <= min(MAX_MENDED_BYTES, len(data) - at):
        mended = _mended(data[at : at + length], length, salt)
    return mended


def _mended(damaged: bytes, length: int, salt: int) -> bytes:
    """*damaged* with at most one byte changed, so that it is a header of *length* bytes; else empty."""
    # These fields can have only one value.
    known = bytearray(damaged)
    known[: len(APPEND_MAGIC)] = APPEND_MAGIC
    _SIZE.pack_into(known, _SIZE_OFFSET, length)
    wrong = _differences(known, damaged)
    content, check = known[: -_CHECK.size], bytes(known[-_CHECK.size :])
    right = _CHECK.pack(xxh3_64_intdigest(content, salt))
    if wrong + _differences(right, check) <= 1:
        return bytes(content) + right
    if wrong:
        return b""
    (wanted,) = _CHECK.unpack(check)
    for place in range(len(content)):
        was = content[place]
        for value in range(256):
            content[place] = value
            if xxh3_64_intdigest(content, salt) == wanted:
                return bytes(content) + check
        content[place] = was
    return b""


def _differences(one: bytes | bytearray, other: bytes) -> int:
    """How many bytes differ."""
    return sum(a != b for a, b in zip(one, other, strict=True))


def find_append(data: bytes, at: int, base: int, salt: int, least: int) -> Append | None:
    """The first whole header in *data* behind *at*, of an append at or after the sequence *least*."""
    while (at := data.find(APPEND_MAGIC, at + 1)) >= 0:
        found = decode_append(data, at, base, salt)
        if found is not None and found.first >= least:
            return found
    return None
