"""The types of the fields of frames: each has its bytes in one place. Pure.

A frame is a dataclass, and each field is annotated with one of these types: `shape` reads the annotations.
All numbers are little-endian. Any other value than a field may have is a `BadFrame`, and the connection ends:
nothing behind it can be trusted.
"""

import dataclasses
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias, get_type_hints

from nsqclient.wire.names import is_ephemeral, is_valid_name
from nsqd.log.ids import MAX_NODE_ID

IDENTITY_BYTES: Final = 16
NONCE_BYTES: Final = 32
MAX_TEXT: Final = 2048
# At most so many ranges are in one frame; the rest follow in others.
MAX_RANGES: Final = 65_536
MAX_FILES: Final = 32_768
MAX_HOLDERS: Final = 1024

_LOG_NAME: Final = re.compile(r"\d{8,16}(\.\d{1,9})?\.log(\.new)?")
_CHECKPOINTS: Final = frozenset(("checkpoint.0", "checkpoint.1", "checkpoint.0.tmp", "checkpoint.1.tmp"))
_COUNT: Final = struct.Struct("<I")
_RANGE: Final = struct.Struct("<QQ")


class BadFrame(ValueError):
    """Bytes that are not a frame; the text is one sentence for the log of either side."""


def is_copied_name(name: str) -> bool:
    """Whether a file of that name is part of a copy. Frames never write or remove a file of another name."""
    return name in _CHECKPOINTS or _LOG_NAME.fullmatch(name) is not None


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


def shape(kind: type[Any]) -> tuple[tuple[str, FieldType], ...]:
    """The fields of a dataclass in their order, with the types of their annotations."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple((one.name, hints[one.name].__metadata__[0]) for one in dataclasses.fields(kind))


# --- how each type is written and read ---


def _number(form: str, most: int = 1 << 64, what: str = "") -> FieldType:
    """A number; if it is above *most*, the error names *what*."""
    packed = struct.Struct("<" + form)

    def read(rest: FieldReader) -> int:
        (value,) = packed.unpack(rest.take(packed.size))
        if value > most:
            raise BadFrame(f"{value} is no {what}")
        return int(value)

    return FieldType(packed.pack, read)


def _fixed(size: int) -> FieldType:
    return FieldType(bytes, lambda rest: rest.take(size))


def _text(size: FieldType, is_valid: Callable[[str], bool], problem: str) -> FieldType:
    """A text behind its *size*; one that is not valid has a *problem*."""

    def write(text: str) -> bytes:
        data = text.encode("utf-8", "replace")[:MAX_TEXT]
        return size.write(len(data)) + data

    def read(rest: FieldReader) -> str:
        count = size.read(rest)
        if count > MAX_TEXT:
            raise BadFrame(f"a text of {count} bytes is longer than {MAX_TEXT}")
        try:
            text = rest.take(count).decode()
        except UnicodeDecodeError as error:
            raise BadFrame("a text is not UTF-8") from error
        if not is_valid(text):
            raise BadFrame(problem)
        return text

    return FieldType(write, read)


def _read_count(rest: FieldReader, most: int) -> int:
    (count,) = _COUNT.unpack(rest.take(_COUNT.size))
    if count > most:
        raise BadFrame(f"{count} are more than the {most} that a frame may hold")
    return int(count)


def many(kind: type[Any], most: int) -> FieldType:
    """A list of dataclasses."""
    fields = shape(kind)

    def write(values: tuple[Any, ...]) -> bytes:
        found = [one.write(getattr(value, name)) for value in values for name, one in fields]
        return _COUNT.pack(len(values)) + b"".join(found)

    def read(rest: FieldReader) -> tuple[Any, ...]:
        return tuple(kind(*(one.read(rest) for _, one in fields)) for _ in range(_read_count(rest, most)))

    return FieldType(write, read)


def _ranges(ranges: tuple[tuple[int, int], ...]) -> bytes:
    return _COUNT.pack(len(ranges)) + b"".join(_RANGE.pack(start, end) for start, end in ranges)


def _read_ranges(rest: FieldReader) -> tuple[tuple[int, int], ...]:
    count = _read_count(rest, MAX_RANGES)
    found = tuple(_RANGE.iter_unpack(rest.take(count * _RANGE.size)))
    behind = 0
    for start, end in found:
        if not behind <= start < end:
            raise BadFrame("ranges are not in order")
        behind = end
    return found


# --- the types ---

_flag = _number("B", 1, "flag")
U8: TypeAlias = Annotated[int, _number("B")]
U16: TypeAlias = Annotated[int, _number("H")]
U32: TypeAlias = Annotated[int, _number("I")]
U64: TypeAlias = Annotated[int, _number("Q")]
NodeId: TypeAlias = Annotated[int, _number("H", MAX_NODE_ID, "node id")]
Kind: TypeAlias = Annotated[int, _number("B", 5, "kind of a copy")]
Flag: TypeAlias = Annotated[bool, FieldType(_flag.write, lambda rest: bool(_flag.read(rest)))]
Identity: TypeAlias = Annotated[bytes, _fixed(IDENTITY_BYTES)]
Bytes32: TypeAlias = Annotated[bytes, _fixed(NONCE_BYTES)]
Text: TypeAlias = Annotated[str, _text(_number("H"), lambda _text: True, "")]
TopicName: TypeAlias = Annotated[
    str,
    _text(
        _number("H"),
        lambda name: is_valid_name(name) and not is_ephemeral(name),
        "the name of a topic is not valid",
    ),
]
ChannelName: TypeAlias = Annotated[
    str,
    _text(_number("H"), lambda name: not name or is_valid_name(name), "the name of a channel is not valid"),
]
# The name of a file of a copy.
FileName: TypeAlias = Annotated[
    str, _text(_number("B"), is_copied_name, "a file of that name is no part of a copy")
]
# The rest of the frame.
Remaining: TypeAlias = Annotated[bytes, FieldType(bytes, FieldReader.rest)]
RangeList: TypeAlias = Annotated[tuple[tuple[int, int], ...], FieldType(_ranges, _read_ranges)]
