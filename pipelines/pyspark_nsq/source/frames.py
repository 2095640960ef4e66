"""Splits message frames, as nsqd stores them, into columns.

    uint32 size | uint32 type | int64 timestamp | uint16 attempts | 16 bytes id | [headers] | body

A batch has hundreds of thousands of messages, so none of them becomes a Python object: numpy reads the heads
and Arrow copies the bodies. Only finding the frames takes a step in Python for each message, and only if the
frames differ in size.
"""

import binascii
import struct
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nsqclient.wire.frames import FRAME_MESSAGE, FrameError
from nsqclient.wire.message import MESSAGE_ID_BYTES
from pyspark_nsq.source.arrays import numbers
from pyspark_nsq.source.headers import as_maps, json_ends

_HEAD: Final = np.dtype(
    [
        ("size", ">u4"),
        ("type", ">u4"),
        ("timestamp_ns", ">i8"),
        ("attempts", ">u2"),
        ("id", np.uint8, (MESSAGE_ID_BYTES,)),
    ]
)
_SIZE: Final = struct.Struct(">I")
# The size does not count itself.
_SIZE_BYTES: Final = _SIZE.size
# The lower 54 bits of a message id are the sequence, the upper 10 the node.
_SEQUENCE_MASK: Final = np.uint64((1 << 54) - 1)

Int64s = npt.NDArray[np.int64]


class Messages(NamedTuple):
    """One value for each message, in the order of the frames."""

    bodies: Any
    """An Arrow array of binary values."""
    ids: bytes
    """All ids, one after the other."""
    timestamps_us: Int64s
    attempts: npt.NDArray[np.int32]
    sequences: Int64s
    headers: Any = None
    """An Arrow array of maps; None when they were not asked for."""


def decode_frames(frames: bytes, *, extended: bool = False) -> Messages:
    """Split whole message frames into columns. Raises FrameError for other bytes.

    With *extended*, headers precede each body.
    """
    starts = _frame_starts(frames)
    count = len(starts)
    # Heads and bodies alternate, with *extended* also headers and their prefix; Arrow gathers each kind
    # without reading the bytes.
    kinds = 4 if extended else 2
    cuts = np.empty(kinds * count + 1, np.int32)
    cuts[0:-1:kinds] = starts
    cuts[1::kinds] = starts + _HEAD.itemsize
    cuts[-1] = len(frames)
    if count and (np.diff(cuts[np.arange(kinds * count + 1) % kinds < 2]) < 0).any():
        raise FrameError(f"a frame is shorter than the {_HEAD.itemsize} bytes of a message without a body")
    if extended:
        ends = np.append(starts[1:], len(frames))[:count]
        cuts[2::kinds], cuts[3::kinds] = json_ends(frames, starts + _HEAD.itemsize, ends)
    pieces = pa.Array.from_buffers(
        pa.binary(), kinds * count, [None, pa.py_buffer(cuts), pa.py_buffer(frames)]
    )
    turns = np.arange(0, kinds * count, kinds)
    heads = np.frombuffer(_values(pieces.take(numbers(turns, pa.int64()))), _HEAD, count)
    if (heads["type"] != FRAME_MESSAGE).any():
        raise FrameError("a frame is not a message")
    ids = heads["id"].tobytes()
    return Messages(
        bodies=pieces.take(numbers(turns + kinds - 1, pa.int64())),
        ids=ids,
        timestamps_us=heads["timestamp_ns"].astype(np.int64) // 1000,
        attempts=heads["attempts"].astype(np.int32),
        sequences=_sequences(ids),
        headers=as_maps(pieces.take(numbers(turns + 2, pa.int64()))) if extended else None,
    )


def _frame_starts(frames: bytes) -> Int64s:
    """Return the position of each frame."""
    end = len(frames)
    if not end:
        return np.empty(0, np.int64)
    try:
        stride = _SIZE_BYTES + _SIZE.unpack_from(frames)[0]
        if end % stride == 0 and _all_of_size(frames, stride):
            return np.arange(0, end, stride)
        starts = []
        position = 0
        size_at = _SIZE.unpack_from
        while position < end:
            starts.append(position)
            position += _SIZE_BYTES + size_at(frames, position)[0]
    except struct.error as error:
        raise FrameError("the bytes end within the size of a frame") from error
    if position != end:
        raise FrameError(f"the last frame lacks {position - end} bytes")
    return np.array(starts, np.int64)


def _all_of_size(frames: bytes, stride: int) -> bool:
    sizes = np.ndarray((len(frames) // stride,), ">u4", frames, 0, (stride,))
    return bool((sizes == stride - _SIZE_BYTES).all())


def _values(array: Any) -> memoryview:
    """Return the bytes of all values of a binary array that Arrow has just made."""
    return memoryview(array.buffers()[2] or b"")


def _sequences(ids: bytes) -> Int64s:
    try:
        keys = np.frombuffer(binascii.unhexlify(ids), ">u8")
    except binascii.Error as error:
        raise FrameError("a message id is not hexadecimal") from error
    return (keys & _SEQUENCE_MASK).astype(np.int64)
