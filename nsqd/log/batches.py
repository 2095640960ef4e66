"""Batches of messages to publish together, already checked to be complete and of legal size. Pure."""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from nsqd.log.frames import Piece, piece_of

_INT32: Final = struct.Struct(">i")
# Smaller batches are faster read one by one; for larger ones the encoder's layout would cost more than it
# saves.
MIN_EVEN: Final = 32
MAX_EVEN: Final = 1024
# MPUB puts a size of so many bytes before each body.
SIZE_BYTES: Final = 4
# The cells of a batch whose messages do not lie together; nobody writes to them.
_NO_CELLS: Final = bytearray()


@lru_cache(maxsize=64)
def _columns(size: bytes, count: int) -> bytes:
    """The first byte of *size*, *count* times, then the second byte as often, and so on."""
    return b"".join([size[column : column + 1] * count for column in range(SIZE_BYTES)])


class Batch:
    """Bodies in order; bodies of one size from one MPUB lie together as they were received."""

    __slots__ = ("_bodies", "cells", "count", "extension_bytes", "has_headers", "size", "spare", "stride")

    def __init__(
        self,
        bodies: Sequence[Piece],
        *,
        size: int = -1,
        has_headers: bool = False,
        extension_bytes: int = 0,
    ) -> None:
        """*bodies* are as they lie in a block: with *has_headers* each begins with its extension.

        *extension_bytes* is the size of all extensions together, *size* that of all bodies, or -1 if not
        known.
        """
        self._bodies = bodies
        self.count = len(bodies)
        self.has_headers = has_headers
        self.extension_bytes = extension_bytes
        # Bytes of all bodies.
        self.size = sum(map(len, bodies)) if size < 0 else size
        # `cells` are messages of one size as MPUB sends them, a copy into which the encoder writes. `stride`
        # is the distance from one message to the next, or 0 without cells. `spare` is how many bytes before
        # each body the encoder may use.
        self.cells = _NO_CELLS
        self.stride = 0
        self.spare = SIZE_BYTES

    @property
    def bodies(self) -> Sequence[Piece]:
        if not self.stride:
            return self._bodies
        cells, stride, spare = bytes(self.cells), self.stride, self.spare
        return [piece_of(cells, at - stride + spare, at) for at in range(stride, len(cells) + 1, stride)]


def even_batch(payload: bytes, start: int, count: int, max_size: int) -> Batch | None:
    """The *count* messages that lie in *payload* from *start* on, if all are there and of one legal size.

    Returns None otherwise, and when there are too few or too many: the caller then reads them one by one.
    """
    if not MIN_EVEN <= count <= MAX_EVEN or start + SIZE_BYTES > len(payload):
        return None
    size = int(_INT32.unpack_from(payload, start)[0])
    stride = SIZE_BYTES + size
    end = start + count * stride
    if not 0 < size <= max_size or end > len(payload):
        return None
    cells = bytearray(memoryview(payload)[start:end])
    sizes = b"".join((cells[0::stride], cells[1::stride], cells[2::stride], cells[3::stride]))
    if sizes != _columns(payload[start : start + SIZE_BYTES], count):
        return None
    batch = Batch((), size=count * size)
    batch.count = count
    batch.cells = cells
    batch.stride = stride
    return batch
