"""The fields of frames, to bytes and from bytes: each type of field defines both in one place. Pure.

All numbers are little-endian. Any other value than a field may have is a `BadFrame`, and the connection ends:
nothing behind it can be trusted.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from nsqclient.wire.names import is_ephemeral, is_valid_name
from nsqd.log.ids import MAX_NODE_ID
from nsqd.replication.frames import (
    IDENTITY_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    CopiedFile,
    CopyId,
    CopyKind,
    Holder,
    is_copied_name,
)

MAX_TEXT: Final = 2048
# At most so many ranges are in one frame; the rest follow in others.
MAX_RANGES: Final = 65_536
MAX_FILES: Final = 32_768
MAX_HOLDERS: Final = 1024

_FILE: Final = struct.Struct("<QQQQQ")
_RANGE: Final = struct.Struct("<QQ")


class BadFrame(ValueError):
    """Bytes that are not a frame; the text is one sentence for the log of either side."""


class FieldReader:
    """The bytes of one frame's fields, taken one by one. Raises BadFrame."""

    __slots__ = ("_at", "_data", "_end")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self._data = data
        self._at = at
        self._end = end

    def take(self, size: int) -> bytes:
        at = self._at
        if at + size > self._end:
            raise BadFrame("a frame is shorter than what it should hold")
        self._at = at + size
        return self._data[at : at + size]

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(self._end - self._at)

    def done(self) -> None:
        if self._at != self._end:
            raise BadFrame("a frame is longer than what it holds")


@dataclass(frozen=True, slots=True)
class FieldType:
    """One type of field: from value to bytes, which raises BadFrame where it is too long, and back."""

    write: Callable[[Any], bytes]
    read: Callable[[FieldReader], Any]


# --- numbers ---


def _number(form: str, most: int = 1 << 64, what: str = "") -> FieldType:
    """A number; one above *most* is not *what* it should be."""
    packed = struct.Struct("<" + form)

    def read(rest: FieldReader) -> int:
        (value,) = packed.unpack(rest.take(packed.size))
        if value > most:
            raise BadFrame(f"{value} is no {what}")
        return int(value)

    return FieldType(packed.pack, read)


U8: Final = _number("B")
U16: Final = _number("H")
U32: Final = _number("I")
U64: Final = _number("Q")
NODE_ID: Final = _number("H", MAX_NODE_ID, "node id")
COPY_KIND: Final = _number("B", CopyKind.ORIGIN, "kind of a copy")
_FLAG: Final = _number("B", 1, "flag")
FLAG: Final = FieldType(_FLAG.write, lambda rest: bool(_FLAG.read(rest)))


# --- bytes and texts ---


def _blob(data: bytes) -> bytes:
    if len(data) > MAX_TEXT:
        raise BadFrame(f"a text of {len(data)} bytes is longer than {MAX_TEXT}")
    return U16.write(len(data)) + data


def _read_blob(rest: FieldReader) -> bytes:
    size = U16.read(rest)
    if size > MAX_TEXT:
        raise BadFrame(f"a text of {size} bytes is longer than {MAX_TEXT}")
    return rest.take(size)


def _text(text: str) -> bytes:
    return _blob(text.encode("utf-8", "replace")[:MAX_TEXT])


def _read_text(rest: FieldReader) -> str:
    try:
        return _read_blob(rest).decode()
    except UnicodeDecodeError as error:
        raise BadFrame("a text is not UTF-8") from error


def _read_topic(rest: FieldReader) -> str:
    name = _read_text(rest)
    if not is_valid_name(name) or is_ephemeral(name):
        raise BadFrame("the name of a topic is not valid")
    return name


def _read_channel(rest: FieldReader) -> str:
    name = _read_text(rest)
    if name and not is_valid_name(name):
        raise BadFrame("the name of a channel is not valid")
    return name


def _file_name(name: str) -> bytes:
    data = name.encode()
    return U8.write(len(data)) + data


def _read_file_name(rest: FieldReader) -> str:
    name = rest.take(U8.read(rest)).decode("latin-1")
    if not is_copied_name(name):
        raise BadFrame("a file of that name is no part of a copy")
    return name


IDENTITY: Final = FieldType(bytes, lambda rest: rest.take(IDENTITY_BYTES))
NONCE: Final = FieldType(bytes, lambda rest: rest.take(NONCE_BYTES))
PROOF: Final = FieldType(bytes, lambda rest: rest.take(PROOF_BYTES))
TEXT: Final = FieldType(_text, _read_text)
TOPIC: Final = FieldType(_text, _read_topic)
CHANNEL: Final = FieldType(_text, _read_channel)
# The name of a file of a copy.
FILE_NAME: Final = FieldType(_file_name, _read_file_name)
# The rest of the frame.
REST: Final = FieldType(bytes, FieldReader.rest)


# --- lists ---


def _read_count(rest: FieldReader, most: int) -> int:
    count: int = U32.read(rest)
    if count > most:
        raise BadFrame(f"{count} are more than the {most} that a frame may hold")
    return count


def _many(kind: FieldType, most: int) -> FieldType:
    def write(values: tuple[Any, ...]) -> bytes:
        return U32.write(len(values)) + b"".join(map(kind.write, values))

    def read(rest: FieldReader) -> tuple[Any, ...]:
        return tuple(kind.read(rest) for _ in range(_read_count(rest, most)))

    return FieldType(write, read)


def _file(one: CopiedFile) -> bytes:
    return _file_name(one.name) + _FILE.pack(one.salt, one.size, one.first, one.next_seq, one.last_note)


def _read_file(rest: FieldReader) -> CopiedFile:
    return CopiedFile(_read_file_name(rest), *_FILE.unpack(rest.take(_FILE.size)))


def _ranges(ranges: tuple[tuple[int, int], ...]) -> bytes:
    return U32.write(len(ranges)) + b"".join(_RANGE.pack(start, end) for start, end in ranges)


def _read_ranges(rest: FieldReader) -> tuple[tuple[int, int], ...]:
    count = _read_count(rest, MAX_RANGES)
    found = tuple(_RANGE.iter_unpack(rest.take(count * _RANGE.size)))
    behind = 0
    for start, end in found:
        if not behind <= start < end:
            raise BadFrame("ranges are not in order")
        behind = end
    return found


def _holder(one: Holder) -> bytes:
    return one.identity + _text(one.address)


def _read_holder(rest: FieldReader) -> Holder:
    return Holder(rest.take(IDENTITY_BYTES), _read_text(rest))


def _copy_id(one: CopyId) -> bytes:
    return one.node + U64.write(one.number)


def _read_copy_id(rest: FieldReader) -> CopyId:
    return CopyId(rest.take(IDENTITY_BYTES), U64.read(rest))


HOLDERS: Final = _many(FieldType(_holder, _read_holder), MAX_HOLDERS)
COPY_IDS: Final = _many(FieldType(_copy_id, _read_copy_id), MAX_HOLDERS)
FILES: Final = _many(FieldType(_file, _read_file), MAX_FILES)
RANGES: Final = FieldType(_ranges, _read_ranges)
