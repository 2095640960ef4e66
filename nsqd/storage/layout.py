"""Version 2 of the log files, byte by byte; docs/storage-format.md has the picture.

All numbers are little-endian. A file is two copies of the file header, then appends. Each append is a
header of 48 bytes and its data: the frames of messages as they lie on the wire, or a note. Both checksums
of an append are seeded with the salt of its file. So neither the body of a message nor the rest of another
file can be taken for an append.
"""

import struct
from dataclasses import dataclass
from typing import Final

from xxhash import xxh3_64_intdigest

VERSION: Final = 2

# --- the file header ---

FILE_MAGIC: Final = b"NSQLOG\x02\n"
# What the magic of every version begins with; the number of the version follows.
_FAMILY: Final = b"NSQLOG"
# magic, version, flags, size of this header, first sequence, follows, notes, ends, salt, origin
_FILE: Final = struct.Struct("<8sHHIQQQQQQ")
_CHECK: Final = struct.Struct("<Q")
_COPY_BYTES: Final = _FILE.size + _CHECK.size
FILE_HEADER_BYTES: Final = 2 * _COPY_BYTES
AFTER_FAILURE: Final = 0x0100


class NewerVersion(Exception):
    """The file was written by a version of nsqd that this one does not know; the text says where."""


class NotALog(Exception):
    """Neither copy of the file header can be read."""


@dataclass(frozen=True, slots=True)
class FileHeader:
    """What a file says of itself.

    *follows* is where the log ended when the file was begun: sequences between the end of the file before
    and that number were stored once, sequences from it to *first* were never used; 0 when there was none
    before or that is not known. *notes* is how many notes there were before. *ends* is set in a compacted
    file: what is missing below it was finished by everybody. *origin* is the id of the node that wrote the
    log. *after_failure* is set when the file before could not be written or synced to its end, or was removed
    before a checkpoint could say so, and in the first file after a start, which has synced or cut all that
    was before: such a file counts whatever is missing before it.
    """

    first: int
    follows: int
    salt: int
    origin: int
    notes: int = 0
    ends: int = 0
    after_failure: bool = False

    def encode(self) -> bytes:
        """Both copies."""
        fields = _FILE.pack(
            FILE_MAGIC,
            VERSION,
            AFTER_FAILURE if self.after_failure else 0,
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
        return FileHeader(first, follows, salt, origin, notes, ends, bool(flags & AFTER_FAILURE))
    version = data[len(_FAMILY) : len(_FAMILY) + 1]
    if data.startswith(_FAMILY) and version > bytes([VERSION]):
        raise NewerVersion(f"log format {version[0]} is not known")
    raise NotALog("neither copy of the file header is whole")


def mend_file_header(data: bytes) -> bytes:
    """What a file that begins with *data* should begin with: both copies whole. Raises NotALog."""
    for at in (0, _COPY_BYTES):
        copy = data[at : at + _COPY_BYTES]
        if len(copy) == _COPY_BYTES and copy[_FILE.size :] == _CHECK.pack(
            xxh3_64_intdigest(copy[: _FILE.size])
        ):
            return 2 * copy
    raise NotALog("neither copy of the file header is whole")


# --- the header of an append ---

APPEND_MAGIC: Final = b"\xb5NSQ"
# magic, flags, size of the header, number of messages, size of the data, first sequence, due time in ns
# since 1970 or 0, checksum of what lies between this header and the next
_APPEND: Final = struct.Struct("<4sHHIIQQQ")
APPEND_HEADER_BYTES: Final = _APPEND.size + _CHECK.size
MAX_DATA_BYTES: Final = (1 << 32) - 1

# A flag of the lower byte changes what the data means: a reader that does not know it must not go on.
MUST_UNDERSTAND: Final = 0x00FF
# The data is a note on the topic or one of its channels, not messages.
NOTE: Final = 0x0001


def append_header(salt: int, first: int, count: int, due_ns: int, data: bytes, flags: int = 0) -> bytes:
    """What is written before *data*."""
    check = xxh3_64_intdigest(data, salt)
    fields = _APPEND.pack(APPEND_MAGIC, flags, APPEND_HEADER_BYTES, count, len(data), first, due_ns, check)
    return fields + _CHECK.pack(xxh3_64_intdigest(fields, salt))


class Append:
    """One append: its data lies at ``start <= offset < end`` and holds ``first <= seq < next``."""

    __slots__ = ("check", "due_ns", "end", "first", "flags", "next", "start")

    def __init__(
        self, flags: int, start: int, end: int, first: int, count: int, due_ns: int, check: int
    ) -> None:
        self.flags = flags
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

    def header(self, salt: int) -> bytes:
        """Its header as it was written."""
        count, size = self.next - self.first, self.end - self.start
        fields = _APPEND.pack(
            APPEND_MAGIC, self.flags, APPEND_HEADER_BYTES, count, size, self.first, self.due_ns, self.check
        )
        return fields + _CHECK.pack(xxh3_64_intdigest(fields, salt))

    def matches(self, data: bytes | memoryview, salt: int) -> bool:
        """Whether *data* is what was written."""
        return len(data) == self.end - self.start and xxh3_64_intdigest(data, salt) == self.check


def decode_append(data: bytes, at: int, base: int, salt: int) -> Append | None:
    """The append whose header lies *at* this place of *data*; None when there is none or it is damaged.

    *base* is where *data* lies in the file; the append's offsets are those of the file. Raises NewerVersion.
    """
    if at + APPEND_HEADER_BYTES > len(data):
        return None
    fields = data[at : at + _APPEND.size]
    if xxh3_64_intdigest(fields, salt) != _CHECK.unpack_from(data, at + _APPEND.size)[0]:
        return None
    magic, flags, header_bytes, count, size, first, due_ns, check = _APPEND.unpack(fields)
    if magic != APPEND_MAGIC:
        return None
    if flags & MUST_UNDERSTAND & ~NOTE or header_bytes != APPEND_HEADER_BYTES:
        raise NewerVersion(f"an append with flags {flags:#06x} at {base + at} is not known")
    start = base + at + APPEND_HEADER_BYTES
    return Append(flags, start, start + size, first, count, due_ns, check)


def mend_append(data: bytes, at: int, base: int, salt: int) -> Append | None:
    """The append whose header lies *at* this place and has one wrong byte; None when that is not so.

    64 bits of checksum are enough to find the byte, and so the append behind a damaged header is not lost.
    """
    damaged = bytearray(data[at : at + APPEND_HEADER_BYTES])
    if len(damaged) < APPEND_HEADER_BYTES or not any(damaged):
        return None
    for place in range(APPEND_HEADER_BYTES):
        was = damaged[place]
        for value in range(256):
            damaged[place] = value
            fields, check = damaged[: _APPEND.size], damaged[_APPEND.size :]
            if xxh3_64_intdigest(fields, salt) == int.from_bytes(check, "little"):
                return decode_append(bytes(damaged), 0, base + at, salt)
        damaged[place] = was
    return None


def find_append(data: bytes, at: int, base: int, salt: int, least: int) -> Append | None:
    """The first whole header in *data* behind *at*, of an append at or after the sequence *least*."""
    while (at := data.find(APPEND_MAGIC, at + 1)) >= 0:
        found = decode_append(data, at, base, salt)
        if found is not None and found.first >= least:
            return found
    return None
