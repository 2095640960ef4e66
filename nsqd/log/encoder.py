"""Batches of messages to publish, and the encoder, which turns them into numbered blocks of frames. Pure.

The fast layouts of batches are here and nowhere else.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from itertools import accumulate, repeat
from operator import add
from typing import Final

from nsqd.log.frames import (
    FRAME_OVERHEAD,
    FRAME_TYPE_MESSAGE,
    HEAD,
    NOT_DEFERRED,
    SIZE,
    SIZED_OVERHEAD,
    Block,
    Buffer,
    WallNs,
    view_of,
)
from nsqd.log.ids import SUFFIX_COLUMNS, SUFFIX_MASK, SUFFIXES, MessageIds

_INT32: Final = struct.Struct(">i")
# Smaller batches are faster read one by one; for larger ones the encoder's layout would cost more than it
# saves.
MIN_EVEN: Final = 32
MAX_EVEN: Final = 1024
# MPUB puts a size of so many bytes before each body.
SIZE_BYTES: Final = 4
# The cells of a batch whose messages are not contiguous. No code writes to them.
_NO_CELLS: Final = bytearray()


@lru_cache(maxsize=64)
def _columns(size: bytes, count: int) -> bytes:
    """The first byte of *size*, *count* times, then the second byte as often, and so on."""
    return b"".join([size[column : column + 1] * count for column in range(SIZE_BYTES)])


class Batch:
    """Bodies in order. Bodies of one size from one MPUB are contiguous, as received."""

    __slots__ = ("_bodies", "cells", "count", "extension_bytes", "has_headers", "size", "spare", "stride")

    def __init__(
        self,
        bodies: Sequence[Buffer],
        *,
        size: int = -1,
        has_headers: bool = False,
        extension_bytes: int = 0,
    ) -> None:
        """*bodies* have the format of a block: with *has_headers* each begins with its extension.

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
    def bodies(self) -> Sequence[Buffer]:
        if not self.stride:
            return self._bodies
        cells, stride, spare = bytes(self.cells), self.stride, self.spare
        return [view_of(cells, at - stride + spare, at) for at in range(stride, len(cells) + 1, stride)]


def even_batch(payload: bytes, start: int, count: int, max_size: int) -> Batch | None:
    """The *count* messages in *payload* from *start* on, if it has them all and they have one legal size.

    Else None, also for too few or too many messages: the caller then reads them one by one.
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


# Of all numbers below 65,536, written with four digits: all first digits, all second digits, and so on.
FIRST_DIGITS, SECOND_DIGITS, THIRD_DIGITS, FOURTH_DIGITS = SUFFIX_COLUMNS


@lru_cache(maxsize=64)
def _pieces(length: int, count: int) -> struct.Struct:
    """Cuts *count* parts of *length* bytes, after an empty one: so a join by a head begins with the head."""
    return struct.Struct("0s" + f"{length}s" * count)


class Encoder:
    """Turns the bodies published to one topic into blocks, numbering them from ``next_seq``."""

    __slots__ = (
        "_end",
        "_ends",
        "_even",
        "_first",
        "_head",
        "_ids",
        "_parts",
        "_size",
        "_timestamp_ns",
        "due_ns",
        "has_headers",
        "next_seq",
    )

    # PUBs of one turn of the event loop share a block up to this size.
    BLOCK_BYTES: Final = 1 << 20

    def __init__(self, ids: MessageIds, next_seq: int) -> None:
        self._ids = ids
        self.next_seq = next_seq
        self._first = next_seq
        self._parts: list[Buffer] = []
        self._ends: list[int] = []
        self._end = 0
        self._size = -1
        # The size that all messages of the open block have, or -1.
        self._even = -1
        self._timestamp_ns = -1
        self._head = b""
        # When the messages of the open block are due, if they are deferred.
        self.due_ns = NOT_DEFERRED
        # Whether each body of the open block begins with its extension.
        self.has_headers = False

    @property
    def open_count(self) -> int:
        """How many messages the open block has."""
        return len(self._ends)

    @property
    def open_bytes(self) -> int:
        """How many bytes the open block has."""
        return self._end if self._ends else 0

    def put(self, body: Buffer, now_ns: WallNs) -> bool:
        """Add one message to the open block; True when that block is large enough to be closed."""
        size = len(body)
        seq = self.next_seq
        self.next_seq = seq + 1
        suffix = seq & SUFFIX_MASK
        if size != self._size or not suffix or now_ns != self._timestamp_ns:
            if size != self._even:
                self._even = -1 if self._ends else size
            self._size = size
            self._timestamp_ns = now_ns
            self._head = self._head_for(seq, size, now_ns)
        parts = self._parts
        parts.append(self._head)
        parts.append(SUFFIXES[suffix])
        parts.append(body)
        self._end += size + FRAME_OVERHEAD
        self._ends.append(self._end)
        return self._end >= self.BLOCK_BYTES

    def close(self) -> Block | None:
        """The block of the messages :meth:`put` since the previous block; None if there are none."""
        if not self._ends:
            return None
        count, data = len(self._ends), b"".join(self._parts)
        stride, ends = (self._even + FRAME_OVERHEAD, None) if self._even >= 0 else (0, self._ends)
        block = Block(
            self._first,
            count,
            data,
            stride=stride,
            ends=ends,
            due_ns=self.due_ns,
            has_headers=self.has_headers,
        )
        self.due_ns = NOT_DEFERRED
        self.has_headers = False
        self._even = -1
        self._parts = []
        self._ends = []
        self._end = 0
        # The head names the sequence prefix, which the next block may not share.
        self._size = -1
        self._first = self.next_seq
        return block

    def framed(self, frame: BytesIO, now_ns: WallNs) -> Block:
        """A block of the message in *frame*, behind room for its head.

        Only to be called between :meth:`close` and :meth:`put`.
        """
        seq = self.next_seq
        with frame.getbuffer() as data:
            head = self._head_for(seq, len(data) - FRAME_OVERHEAD, now_ns) + SUFFIXES[seq & SUFFIX_MASK]
            data[:FRAME_OVERHEAD] = head
        self.next_seq = self._first = seq + 1
        # The buffer itself, not a copy.
        whole = frame.getvalue()
        return Block(seq, 1, whole, stride=len(whole))

    def batch(self, batch: Batch, now_ns: WallNs) -> Block:
        """A block of several messages. Only to be called between :meth:`close` and :meth:`put`."""
        return self._even_batch(batch, now_ns) if batch.stride else self._bodies(batch, now_ns)

    def _even_batch(self, batch: Batch, now_ns: WallNs) -> Block:
        """A block of messages of one size in MPUB's format, with a size before each."""
        first, count, stride, spare = self.next_seq, batch.count, batch.stride, batch.spare
        size = stride - spare
        # Two frames differ only in the last digits of the id and in the body. MPUB has four bytes for the
        # size before each body; the last of them may hold the kind of the headers instead. So the digits are
        # written over the sizes, a column at a time, and one join puts the rest of the frame in between. Each
        # message costs one part of the join, and there is no loop over messages.
        low = first & SUFFIX_MASK
        if spare == SIZE_BYTES and low + count <= SUFFIX_MASK + 1:
            # The most common case: all ids share all digits but the last four.
            cells, stop = batch.cells, low + count
            cells[0::stride] = FIRST_DIGITS[low:stop]
            cells[1::stride] = SECOND_DIGITS[low:stop]
            cells[2::stride] = THIRD_DIGITS[low:stop]
            cells[3::stride] = FOURTH_DIGITS[low:stop]
            data = self._head_for(first, size, now_ns).join(_pieces(stride, count).unpack(cells))
        else:
            data = self._runs(batch, now_ns)
        self.next_seq = self._first = first + count
        return Block(first, count, data, stride=size + FRAME_OVERHEAD, has_headers=batch.has_headers)

    def _runs(self, batch: Batch, now_ns: WallNs) -> bytes:
        """The frames of an even batch, in runs of messages whose ids share all digits but the last ones."""
        first, count, stride, spare = self.next_seq, batch.count, batch.stride, batch.spare
        cells = batch.cells
        runs: list[tuple[int, int, bytes]] = []
        done = 0
        while done < count:
            low = (first + done) & SUFFIX_MASK
            # The ids up to here share all digits but the last *spare* ones.
            stop = min(count, done + (1 << 4 * spare) - (low & ((1 << 4 * spare) - 1)))
            for column in range(spare):
                digits = SUFFIX_COLUMNS[SIZE_BYTES - spare + column]
                place = column + done * stride
                cells[place : stop * stride : stride] = digits[low : low + stop - done]
            head = self._head_for(first + done, stride - spare, now_ns) + SUFFIXES[low][: SIZE_BYTES - spare]
            runs.append((done, stop, head))
            done = stop
        pieces = _pieces(stride, count).unpack(cells)
        return b"".join([head.join((b"", *pieces[begin + 1 : end + 1])) for begin, end, head in runs])

    def _bodies(self, batch: Batch, now_ns: WallNs) -> Block:
        """A block of messages of any sizes."""
        first, bodies = self.next_seq, batch.bodies
        count = len(bodies)
        self.next_seq = self._first = first + count
        sizes = list(map(len, bodies))
        # Four parts for each message: size, equal part, four digits, body. Each assignment sets one kind.
        parts: list[Buffer] = [b""] * (4 * count)
        parts[0::4] = map(SIZE.pack, map(add, sizes, repeat(SIZED_OVERHEAD)))
        parts[3::4] = bodies
        done = 0
        while done < count:
            low = (first + done) & SUFFIX_MASK
            stop = min(count, done + SUFFIX_MASK + 1 - low)
            equal = HEAD.pack(0, FRAME_TYPE_MESSAGE, now_ns, 1)[4:] + self._ids.prefix(first + done)
            parts[4 * done + 1 : 4 * stop : 4] = [equal] * (stop - done)
            parts[4 * done + 2 : 4 * stop : 4] = SUFFIXES[low : low + stop - done]
            done = stop
        ends = list(accumulate(map(add, sizes, repeat(FRAME_OVERHEAD))))
        return Block(first, count, b"".join(parts), ends=ends, has_headers=batch.has_headers)

    def skip_to(self, seq: int) -> None:
        """Continue at *seq*: numbers of messages that were not stored are not used again."""
        self.next_seq = self._first = seq

    def _head_for(self, seq: int, size: int, now_ns: WallNs) -> bytes:
        """Everything of a frame up to the last four digits of the id."""
        return b"%b%b" % (
            HEAD.pack(size + SIZED_OVERHEAD, FRAME_TYPE_MESSAGE, now_ns, 1),
            self._ids.prefix(seq),
        )
