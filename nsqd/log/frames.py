"""Blocks: contiguous message frames, encoded once as a consumer gets them on the first attempt.

Frame: ``uint32 size | uint32 2 | int64 timestamp | uint16 attempts | 16 bytes id | body``, big-endian
(contract of the TCP protocol). One append writes one block to disk, so a block is also the unit of the
checksum; blocks read back from disk may hold several appends.
"""

import struct
from bisect import bisect_right
from typing import Final, NewType, TypeAlias, cast

from nsqd.log.ids import ID_LENGTH

FRAME_TYPE_MESSAGE: Final = 2
# size field, type, timestamp, attempts, id
FRAME_OVERHEAD: Final = 4 + 4 + 8 + 2 + 16
# bytes that the size field counts in addition to the body
SIZED_OVERHEAD: Final = FRAME_OVERHEAD - 4
HEAD: Final = struct.Struct(">IIqH")
SIZE: Final = struct.Struct(">I")
ATTEMPTS_OFFSET: Final = 16
TIMESTAMP_OFFSET: Final = 8
# offset and length of the id
ID_SPAN: Final = (FRAME_OVERHEAD - ID_LENGTH, ID_LENGTH)
_ATTEMPTS: Final = struct.Struct(">H")
_TIMESTAMP: Final = struct.Struct(">q")
MAX_ATTEMPTS: Final = 0xFFFF
# From this length on a view costs less than a copy.
LONG: Final = 4096
# Bytes of memory for each entry in a table of ends.
_END_BYTES: Final = 40
# A time on the wall clock, in ns since 1970, as in frames and on disk. Times of the engine's steady clock are
# plain numbers; only `engine.clock` converts between the two.
WallNs = NewType("WallNs", int)
NOT_DEFERRED: Final = WallNs(0)
# Bytes, or a view of bytes that no longer change.
Buffer: TypeAlias = bytes | memoryview


def view_of(data: bytes, start: int, end: int) -> Buffer:
    """These bytes of *data*. A long range is a view, which keeps *data* in memory."""
    return memoryview(data)[start:end] if end - start >= LONG else data[start:end]


class Block:
    """Frames of the messages ``first <= seq < next``; ``due_ns`` is set when they are deferred.

    With ``has_headers`` every body begins with its extension: see `headers`.
    """

    __slots__ = ("_ends", "data", "due_ns", "first", "has_headers", "next", "stride")

    def __init__(
        self,
        first: int,
        count: int,
        data: bytes,
        *,
        stride: int = 0,
        ends: list[int] | None = None,
        due_ns: WallNs = NOT_DEFERRED,
        has_headers: bool = False,
    ) -> None:
        self.first = first
        self.next = first + count
        self.data = data
        self.due_ns = due_ns
        self.has_headers = has_headers
        # Bytes from one frame to the next if all have one size, as in most batches: no table of ends is
        # needed.
        self.stride = stride
        self._ends = ends

    def __repr__(self) -> str:
        return f"<Block {self.first}..{self.next} {len(self.data)} bytes>"

    def __len__(self) -> int:
        return self.next - self.first

    @property
    def weight(self) -> int:
        """Bytes of memory, roughly."""
        return len(self.data) + (_END_BYTES * len(self._ends) if self._ends else 0)

    def offset(self, seq: int) -> int:
        """Where the frame of *seq* starts; ``seq == next`` gives the length."""
        n = seq - self.first
        if self._ends is None:
            return n * self.stride
        return self._ends[n - 1] if n else 0

    def frames(self, start: int, end: int) -> bytes:
        """The frames of ``start <= seq < end``; the block's own bytes when that is all of it."""
        if start == self.first and end == self.next:
            return self.data
        return self.data[self.offset(start) : self.offset(end)]

    def view(self, start: int, end: int) -> Buffer:
        """Like :meth:`frames`, for immediate sending: a long range keeps the whole block in memory."""
        if start == self.first and end == self.next:
            return self.data
        return view_of(self.data, self.offset(start), self.offset(end))

    def fitting(self, start: int, end: int, max_bytes: int) -> int:
        """The largest ``e <= end`` for which the frames ``start..e`` fit in *max_bytes*, at least one."""
        limit = self.offset(start) + max_bytes
        if self.offset(end) <= limit:
            return end
        n = limit // self.stride if self._ends is None else bisect_right(self._ends, limit)
        return max(start + 1, self.first + n)

    def timestamp_ns(self, seq: int) -> WallNs:
        """When *seq* was published."""
        (value,) = _TIMESTAMP.unpack_from(self.data, self.offset(seq) + TIMESTAMP_OFFSET)
        return cast("WallNs", value)


def published_ns(data: Buffer) -> WallNs:
    """The time of the first message in frames."""
    return cast("WallNs", _TIMESTAMP.unpack_from(data, TIMESTAMP_OFFSET)[0])


def with_attempts(frame: Buffer, attempts: int) -> bytes:
    """The same frame with another number of attempts, limited to what 16 bits can hold."""
    count = _ATTEMPTS.pack(min(attempts, MAX_ATTEMPTS))
    return b"".join((frame[:ATTEMPTS_OFFSET], count, frame[ATTEMPTS_OFFSET + 2 :]))


def with_attempts_each(frames: list[Buffer], attempts: list[int]) -> bytes:
    """The frames one after the other, each with its own number of attempts."""
    patched = with_attempts_all(b"".join(frames), attempts)
    return patched or b"".join(map(with_attempts, frames, attempts))


def with_attempts_all(data: Buffer, attempts: list[int]) -> bytes:
    """Frames of one size with one number of attempts, which is most common: set a column at a time.

    Empty when the frames have several sizes or the numbers differ.
    """
    count = len(attempts)
    stride = len(data) // count
    if (
        stride * count != len(data)
        or SIZE.unpack_from(data, 0)[0] != stride - SIZE.size
        or attempts.count(attempts[0]) < count
    ):
        return b""
    patched = bytearray(data)
    if not _are_all(patched, stride, count):
        return b""
    for place, digit in enumerate(_ATTEMPTS.pack(min(attempts[0], MAX_ATTEMPTS)), ATTEMPTS_OFFSET):
        patched[place::stride] = bytes((digit,)) * count
    return bytes(patched)


def parse_block(
    first: int, data: bytes, *, due_ns: WallNs = NOT_DEFERRED, has_headers: bool = False
) -> Block:
    """The block of the frames in *data*, as they were read back from disk; *first* is the first sequence.

    Raises ValueError when the bytes are not whole message frames.
    """
    total = len(data)
    unpack_from = SIZE.unpack_from
    if total >= FRAME_OVERHEAD:
        (size,) = unpack_from(data, 0)
        stride = 4 + size
        count = total // stride
        if size >= SIZED_OVERHEAD and count * stride == total and _are_all(data, stride, count):
            return Block(first, count, data, stride=stride, due_ns=due_ns, has_headers=has_headers)
    ends: list[int] = []
    end = 0
    while end + FRAME_OVERHEAD <= total:
        (size,) = unpack_from(data, end)
        if size < SIZED_OVERHEAD:
            break
        end += 4 + size
        ends.append(end)
    if end != total:
        raise ValueError(f"frames end at {end}, data at {total}")
    return Block(first, len(ends), data, ends=ends, due_ns=due_ns, has_headers=has_headers)


def _are_all(data: bytes | bytearray, stride: int, count: int) -> bool:
    """Whether the size fields at each *stride* are the same, so that all frames have one size."""
    return count == 1 or all(data[place::stride] == data[place : place + 1] * count for place in range(4))
