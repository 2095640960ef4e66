"""Frames as bytes; docs/internals/replication.md has them byte by byte. Pure.

A frame is the size of the rest, its kind and its fields in the order of its class.
"""

import struct
from collections.abc import Iterator
from typing import Final, get_args

from nsqcore.pieces import add_piece
from nsqd.replication.fields import IDENTITY_BYTES, NONCE_BYTES, BadFrame, FieldReader, shape
from nsqd.replication.frames import VERSIONS, Ack, AnyFrame, Appends, Hello

MAGIC: Final = b"  R2"
# A longer chunk of a file, or a longer append, goes in several frames.
MAX_DATA: Final = 4 << 20
MAX_FRAME: Final = MAX_DATA + 4096
# The appends of one write are one frame up to this size.
MAX_APPEND: Final = 64 << 20

_SIZE: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<IB")
_TOPIC: Final = struct.Struct("<I")
_OFFSET: Final = struct.Struct("<Q")
_VERSIONS: Final = struct.Struct("<HH")
_ACK: Final = struct.Struct("<QQ")

SHAPES: Final = {kind: shape(kind) for kind in get_args(AnyFrame)}
KINDS: Final[dict[int, type[AnyFrame]]] = {kind.KIND: kind for kind in SHAPES}
_FILE_NAME: Final = dict(SHAPES[Appends])["file"]


# --- to bytes ---


def encode(frame: AnyFrame) -> bytes:
    """The bytes of one frame."""
    fields = b"".join([kind.write(getattr(frame, name)) for name, kind in SHAPES[type(frame)]])
    return _HEAD.pack(1 + len(fields), frame.KIND) + fields


def appends_head(topic: int, file: str, offset: int, size: int) -> bytes:
    """The bytes in front of *size* bytes that are appended, which then need not be copied."""
    fields = _TOPIC.pack(topic) + _FILE_NAME.write(file) + _OFFSET.pack(offset)
    return _HEAD.pack(1 + len(fields) + size, Appends.KIND) + fields


# --- from bytes ---


def decode(data: bytes, at: int, end: int) -> AnyFrame:
    """The frame whose kind and fields are at ``at <= offset < end``. Raises BadFrame."""
    if data[at] == Ack.KIND and end - at == 1 + _ACK.size:
        # One of these comes for each turn; no other frame is as frequent.
        return Ack(*_ACK.unpack_from(data, at + 1))
    kind = KINDS.get(data[at])
    if kind is None:
        raise BadFrame(f"there is no frame of kind {data[at]}")
    if kind is Hello:
        lowest, highest = _VERSIONS.unpack(FieldReader(data, at + 1, end).take(_VERSIONS.size))
        if lowest > VERSIONS[1] or highest < VERSIONS[0]:
            return _of_another_version(lowest, highest)
    rest = FieldReader(data, at + 1, end)
    values = {name: field.read(rest) for name, field in SHAPES[kind]}
    rest.done()
    return kind(**values)


def _of_another_version(lowest: int, highest: int) -> Hello:
    """A handshake with its versions only: its other fields may have another form."""
    nothing = bytes(IDENTITY_BYTES)
    return Hello(
        *(nothing, 0, nothing, nothing, 0, "", bytes(NONCE_BYTES)), min_version=lowest, max_version=highest
    )


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
        """The frames that are complete now; `position` is behind the last frame that was returned.

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
