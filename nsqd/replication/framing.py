"""Frames as bytes; docs/internals/replication.md has them byte by byte. Pure.

A frame is the size of what follows, its kind and its fields. `SHAPES` has the fields of each kind in their
order: both writing and reading follow it.
"""

import struct
from collections.abc import Iterator
from typing import Final

from nsqcore.pieces import add_piece
from nsqd.replication import frames
from nsqd.replication.fields import (
    CHANNEL,
    COPY_IDS,
    COPY_KIND,
    FILE_NAME,
    FILES,
    FLAG,
    HOLDERS,
    IDENTITY,
    NODE_ID,
    NONCE,
    PROOF,
    RANGES,
    REST,
    TEXT,
    TOPIC,
    U8,
    U16,
    U32,
    U64,
    BadFrame,
    FieldReader,
    FieldType,
)
from nsqd.replication.frames import VERSIONS, Ack, AnyFrame, Appends

MAGIC: Final = b"  R2"
# A longer piece of a file, or a longer append, goes in several frames.
MAX_DATA: Final = 4 << 20
MAX_FRAME: Final = MAX_DATA + 4096
# What is appended in one write is one frame up to this size.
MAX_APPEND: Final = 64 << 20

_SIZE: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<IB")
_AT: Final = struct.Struct("<IQ")
_VERSIONS: Final = struct.Struct("<HH")
_ACK: Final = struct.Struct("<QQ")

_OF_TOPIC: Final = (("topic", U32),)
_AT_OFFSET: Final = (*_OF_TOPIC, ("offset", U64), ("file", FILE_NAME))
SHAPES: Final[dict[type[AnyFrame], tuple[tuple[str, FieldType], ...]]] = {
    frames.Hello: (
        *(("min_version", U16), ("max_version", U16), ("features", U64), ("identity", IDENTITY)),
        *(("incarnation", U64), ("token", IDENTITY), ("previous_token", IDENTITY), ("node_id", NODE_ID)),
        *(("address", TEXT), ("nonce", NONCE)),
    ),
    frames.Proof: (("mac", PROOF),),
    frames.Refuse: (("code", U8), ("sentence", TEXT)),
    frames.StartTls: (),
    frames.Log: (
        *(("number", U32), ("origin", IDENTITY), ("epoch", U64), ("copy", U64), ("index", U8)),
        *(("strict", FLAG), ("holders", HOLDERS)),
    ),
    frames.Topic: (("log", U32), ("topic", U32), ("name", TOPIC)),
    frames.Have: (*_OF_TOPIC, ("files", FILES)),
    frames.Ready: (("log", U32), ("has_copy", FLAG), ("others", U32)),
    frames.Snapshot: (("log", U32), ("resume", FLAG)),
    frames.Appends: (*_AT_OFFSET, ("data", REST)),
    frames.FilePart: (*_AT_OFFSET, ("check", U64), ("data", REST)),
    frames.Rename: (*_OF_TOPIC, ("file", FILE_NAME), ("name", FILE_NAME)),
    frames.Remove: (*_OF_TOPIC, ("file", FILE_NAME)),
    frames.Seal: (*_OF_TOPIC, ("size", U64), ("file", FILE_NAME)),
    frames.DeleteTopic: (("origin", IDENTITY), ("name", TOPIC), ("below", U64)),
    frames.Sync: (),
    frames.Ping: (),
    frames.Ack: (("written", U64), ("synced", U64)),
    frames.Status: (
        *(("origin", IDENTITY), ("copy", U64), ("kind", COPY_KIND), ("epoch", U64), ("seen", U64)),
        *(("serial", U64), ("checkpointed", U64), ("full", FLAG), ("fully_replicated", FLAG)),
        *(("ask", FLAG), ("last", FLAG), ("owner", IDENTITY)),
        *(("counted", COPY_IDS), ("holders", HOLDERS)),
    ),
    frames.ChannelState: (
        *(("origin", IDENTITY), ("copy", U64), ("topic", TOPIC), ("channel", CHANNEL), ("generation", U64)),
        *(("live", FLAG), ("more", FLAG), ("finished", RANGES), ("pending", RANGES)),
    ),
    frames.TakeOver: (("log", U32), ("epoch", U64)),
    frames.Draining: (("draining", FLAG), ("fewer_copies", FLAG)),
}
KINDS: Final[dict[int, type[AnyFrame]]] = {one.KIND: one for one in SHAPES}


# --- to bytes ---


def encode(frame: AnyFrame) -> bytes:
    """The bytes of one frame."""
    fields = b"".join([kind.write(getattr(frame, name)) for name, kind in SHAPES[type(frame)]])
    return _HEAD.pack(1 + len(fields), frame.KIND) + fields


def appends_head(topic: int, file: str, offset: int, size: int) -> bytes:
    """The bytes in front of *size* bytes that are appended, which then need not be copied."""
    name = FILE_NAME.write(file)
    return b"".join(
        (_HEAD.pack(1 + _AT.size + len(name) + size, Appends.KIND), _AT.pack(topic, offset), name)
    )


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
    if kind is frames.Hello and not speaks(*_VERSIONS.unpack(rest.take(_VERSIONS.size))):
        return _of_another_version(data, at)
    rest = FieldReader(data, at + 1, end)
    values = {name: field.read(rest) for name, field in SHAPES[kind]}
    rest.done()
    return kind(**values)


def speaks(lowest: int, highest: int) -> bool:
    """Whether this release speaks a version between these two."""
    return lowest <= VERSIONS[1] and highest >= VERSIONS[0]


def _of_another_version(data: bytes, at: int) -> frames.Hello:
    """A hello with its versions only: its other fields may have another form."""
    lowest, highest = _VERSIONS.unpack_from(data, at + 1)
    nothing = bytes(frames.IDENTITY_BYTES)
    return frames.Hello(nothing, 0, nothing, nothing, 0, "", bytes(frames.NONCE_BYTES), lowest, highest)


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
        add_piece(self._pieces, data)
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
