"""Frames as bytes; docs/replication.md has them byte by byte. Pure.

A frame is the size of what follows, its kind and its fields. `SHAPES` has the fields of each kind in their
order: both writing and reading follow it.
"""

import struct
from collections.abc import Iterator
from typing import Final

from nsqd.log.ranges import Ranges
from nsqd.replication.fields import (
    BLOB,
    CHANNEL,
    FELLOWS,
    FILE_NAME,
    FILES,
    FLAG,
    FOLDERS,
    IDENTITY,
    MAX_RANGES,
    NODE_ID,
    RANGES,
    REST,
    STATE,
    TEXT,
    TOPIC,
    TOPICS,
    U8,
    U16,
    U32,
    U64,
    BadFrame,
    FieldReader,
    FieldSort,
)
from nsqd.replication.frames import (
    IDENTITY_BYTES,
    VERSION,
    Ack,
    AnyFrame,
    Appends,
    Ask,
    Begin,
    CopiedTopic,
    CopyState,
    Deleted,
    FellowCopy,
    FellowHello,
    Fellows,
    FilePart,
    Finished,
    Gone,
    Had,
    HandOver,
    Have,
    Hello,
    Leaves,
    Offer,
    Refuse,
    Remove,
    Rename,
    Seal,
    StartTls,
    StillHere,
    StillOut,
    SyncCopy,
    Taken,
    Told,
    Welcome,
)

MAGIC: Final = b"  R1"
# A longer piece of a file, or a longer append, goes in several frames.
MAX_DATA: Final = 4 << 20
MAX_FRAME: Final = MAX_DATA + 4096
# What the home appends in one go is one frame up to this size.
MAX_LIVE: Final = 64 << 20

_SIZE: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<IB")
_AT: Final = struct.Struct("<IQ")
_ACK: Final = struct.Struct("<QQ")

_OF_COPY: Final = (("folder", U32),)
_AT_OFFSET: Final = (*_OF_COPY, ("offset", U64), ("file", FILE_NAME))
_VERSION: Final = ("version", U16)
SHAPES: Final[dict[type[AnyFrame], tuple[tuple[str, FieldSort], ...]]] = {
    Hello: (
        _VERSION,
        *(("identity", IDENTITY), ("node_id", NODE_ID), ("appointment", U64)),
        *(("strict", FLAG), ("stands_in", FLAG), ("address", TEXT), ("secret", BLOB)),
    ),
    Welcome: (
        _VERSION,
        *(("identity", IDENTITY), ("node_id", NODE_ID), ("appointment", U64)),
        *(("address", TEXT), ("topics", TOPICS)),
    ),
    FellowHello: (
        _VERSION,
        *(("identity", IDENTITY), ("node_id", NODE_ID), ("home", IDENTITY)),
        *(("address", TEXT), ("secret", BLOB)),
    ),
    Refuse: (("code", U8), ("sentence", TEXT)),
    StartTls: (),
    CopiedTopic: (*_OF_COPY, ("name", TOPIC)),
    Have: (*_OF_COPY, ("files", FILES)),
    Begin: (("appointment", U64), ("left", FOLDERS)),
    Deleted: (("name", TOPIC),),
    CopyState: (*_OF_COPY, ("state", STATE)),
    Appends: (*_AT_OFFSET, ("data", REST)),
    FilePart: (*_AT_OFFSET, ("check", U64), ("data", REST)),
    Rename: (*_OF_COPY, ("file", FILE_NAME), ("name", FILE_NAME)),
    Remove: (*_OF_COPY, ("file", FILE_NAME)),
    Seal: (*_OF_COPY, ("size", U64), ("file", FILE_NAME)),
    SyncCopy: (),
    StillHere: (),
    Ack: (("written", U64), ("synced", U64)),
    Had: (*_OF_COPY, ("ranges", RANGES)),
    Finished: (*_OF_COPY, ("generation", U64), ("channel", CHANNEL), ("ranges", RANGES)),
    StillOut: (*_OF_COPY, ("channel", CHANNEL), ("ranges", RANGES)),
    Ask: (("identity", IDENTITY), ("appointment", U64)),
    Told: (),
    Gone: (("appointment", U64),),
    Offer: (("size", U64),),
    HandOver: (("appointment", U64),),
    Taken: (),
    Fellows: (("keepers", FELLOWS),),
    FellowCopy: (("appointment", U64), ("standing", U8)),
    Leaves: (("leaves", FLAG),),
}
KINDS: Final[dict[int, type[AnyFrame]]] = {one.KIND: one for one in SHAPES}
_NOBODY: Final = bytes(IDENTITY_BYTES)


# --- to bytes ---


def encode(frame: AnyFrame) -> bytes:
    """The bytes of one frame."""
    fields = b"".join([sort.write(getattr(frame, name)) for name, sort in SHAPES[type(frame)]])
    return _HEAD.pack(1 + len(fields), frame.KIND) + fields


def appends_head(folder: int, file: str, offset: int, size: int) -> bytes:
    """The bytes in front of *size* bytes that are appended, which then need not be copied."""
    name = FILE_NAME.write(file)
    return b"".join(
        (_HEAD.pack(1 + _AT.size + len(name) + size, Appends.KIND), _AT.pack(folder, offset), name)
    )


def in_parts(ranges: Ranges) -> Iterator[tuple[tuple[int, int], ...]]:
    """Ranges in parts that fit into one frame; at least one part, so that an empty list is sent too."""
    for at in range(0, max(1, len(ranges)), MAX_RANGES):
        yield tuple(ranges[at : at + MAX_RANGES])


# --- from bytes ---


def decode(data: bytes, at: int, end: int) -> AnyFrame:
    """The frame whose kind and fields lie at ``at <= offset < end``. Raises BadFrame."""
    if data[at] == Ack.KIND and end - at == 1 + _ACK.size:
        # One of these comes for each turn; no other frame is as frequent.
        return Ack(*_ACK.unpack_from(data, at + 1))
    kind = KINDS.get(data[at])
    if kind is None:
        raise BadFrame(f"there is no frame of kind {data[at]}")
    rest = FieldReader(data, at + 1, end)
    values = {}
    for name, sort in SHAPES[kind]:
        values[name] = value = sort.read(rest)
        if name == "version" and value != VERSION:
            return _of_another_version(kind, value)
    rest.done()
    return kind(**values)


def _of_another_version(kind: type[AnyFrame], version: int) -> AnyFrame:
    """A frame with its version only: its other fields may have another form."""
    if kind is FellowHello:
        return FellowHello(_NOBODY, 0, "", _NOBODY, version=version)
    if kind is Hello:
        return Hello(_NOBODY, 0, 0, "", version=version)
    return Welcome(_NOBODY, 0, "", version=version)


class FrameReader:
    """Cuts received bytes into frames. It keeps at most one frame that is incomplete."""

    __slots__ = ("_have", "_need", "_pieces", "max_frame", "position")

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.max_frame = max_frame
        # Bytes of whole frames that were read so far.
        self.position = 0
        self._pieces: list[bytes] = []
        self._have = 0
        self._need = _HEAD.size

    def feed(self, data: bytes) -> Iterator[AnyFrame]:
        """The frames that are complete now; `position` is behind the one that was given last.

        Raises BadFrame, after the frames before it.
        """
        self._pieces.append(data)
        self._have += len(data)
        if self._have < self._need:
            return
        data = b"".join(self._pieces) if len(self._pieces) > 1 else self._pieces[0]
        at, total = 0, len(data)
        self._need = _HEAD.size
        try:
            while total - at >= _HEAD.size:
                (size,) = _SIZE.unpack_from(data, at)
                if not 1 <= size <= self.max_frame:
                    raise BadFrame(f"a frame of {size} bytes is none: 1 to {self.max_frame} are")
                end = at + _SIZE.size + size
                if end > total:
                    self._need = _SIZE.size + size
                    break
                frame = decode(data, at + _SIZE.size, end)
                self.position += end - at
                at = end
                yield frame
        finally:
            # Also when the caller does not ask for the next frame: the next call then has it.
            self._pieces = [data[at:]] if at < total else []
            self._have = total - at
