"""The body of MPUB, and of binary /mpub: ``uint32 count | count x (uint32 size | bytes)``."""

import struct
from typing import Final

from nsqclient.wire.errors import E_BAD_BODY, E_BAD_MESSAGE, ProtocolError
from nsqd.log.encoder import SIZE_BYTES, Batch, even_batch
from nsqd.log.frames import Buffer, view_of
from nsqd.protocol.extended import MAX_ADDED_BYTES
from nsqd.protocol.extended import batch as extended_batch
from nsqd.protocol.extended import even_batch as even_extended

_INT32: Final = struct.Struct(">i")
_COUNT_BYTES: Final = 4
# the smallest message: its size field and one byte
_SMALLEST: Final = 5
# So many messages are staged in one go, which takes some five milliseconds; sizes are checked faster.
SLICE_MESSAGES: Final = 4096
_CHECKED_PER_TURN: Final = 4 * SLICE_MESSAGES


class Truncated(ProtocolError):
    """The payload ends before its messages; the text is for the client if the rest never comes."""

    def __init__(self, code: str, text: str, need: int) -> None:
        """*need* is the least length that the payload must have."""
        super().__init__(code, text)
        self.need = need


class Slices:
    """The messages of a batch that is too long to be published in one go.

    All sizes are checked before the first message is delivered, so that a bad batch publishes nothing.
    """

    __slots__ = (
        "_at",
        "_begin",
        "_checked",
        "_extended",
        "_given",
        "_last",
        "_max_msg_size",
        "_payload",
        "count",
    )

    def __init__(
        self, payload: bytes, begin: int, count: int, *, max_msg_size: int, last: int, extended: bool = False
    ) -> None:
        """*count* messages lie in *payload* from *begin* on and may not go beyond *last*.

        With *extended* they have headers.
        """
        self.count = count
        self._extended = extended
        self._payload = payload
        self._begin = self._at = begin
        self._max_msg_size = max_msg_size
        self._last = last
        self._checked = self._given = 0

    @property
    def end(self) -> int:
        """Where the batch ends in the payload, once all messages were delivered."""
        return self._at

    @property
    def done(self) -> bool:
        """Whether all messages were delivered."""
        return self._given == self.count

    def take(self) -> Batch | None:
        """The next messages to stage; none while they are checked, None when there are no more.

        Raises ProtocolError, but not after messages were delivered.
        """
        if self._checked < self.count:
            self._check()
            return Batch(())
        if self.done:
            return None
        bodies: list[Buffer] = []
        payload, at = self._payload, self._at
        unpack_from = _INT32.unpack_from
        for _ in range(min(SLICE_MESSAGES, self.count - self._given)):
            (size,) = unpack_from(payload, at)
            at += 4 + size
            bodies.append(view_of(payload, at - size, at))
        self._given += len(bodies)
        self._at = at
        return extended_batch(bodies, self._max_msg_size) if self._extended else Batch(bodies)

    def _check(self) -> None:
        stop = min(self.count, self._checked + (SLICE_MESSAGES if self._extended else _CHECKED_PER_TURN))
        bodies: list[Buffer] | None = [] if self._extended else None
        limit = self._max_msg_size + (MAX_ADDED_BYTES if self._extended else 0)
        self._at = check_sizes(
            self._payload, self._at, self._checked, stop, self.count, limit, self._last, bodies
        )
        if bodies is not None:
            extended_batch(bodies, self._max_msg_size)
        self._checked = stop
        if stop == self.count:
            self._at = self._begin


class TooLong(Exception):
    """The batch is to be published in these slices."""

    def __init__(self, slices: Slices) -> None:
        super().__init__(slices.count)
        self.slices = slices


def check_count(payload: bytes, start: int, max_body_size: int) -> int:
    """The number of messages that *payload* announces at *start*. Raises ProtocolError E_BAD_BODY."""
    count = int(_INT32.unpack_from(payload, start)[0])
    if count <= 0 or count > (max_body_size - _COUNT_BYTES) // _SMALLEST:
        raise ProtocolError(E_BAD_BODY, f"MPUB invalid message count {count}")
    return count


def check_begun(payload: bytes, start: int, max_msg_size: int, max_body_size: int) -> None:
    """Check that the messages from *start* (the count) on are all there and of legal size.

    Raises ProtocolError as :func:`read_batch` does.
    """
    begin = start + _COUNT_BYTES
    if begin > len(payload):
        raise Truncated(E_BAD_BODY, "MPUB failed to read message count", begin)
    count = check_count(payload, start, max_body_size)
    check_sizes(payload, begin, 0, count, count, max_msg_size, start + max_body_size)


def check_sizes(
    payload: bytes,
    pos: int,
    first: int,
    stop: int,
    count: int,
    max_msg_size: int,
    last: int,
    bodies: list[Buffer] | None = None,
) -> int:
    """Check that the messages ``first <= i < stop`` of *count*, from *pos* on, are there and of legal size.

    Returns where they end; adds their bodies to *bodies*. Raises ProtocolError.
    """
    total = len(payload)
    unpack_from = _INT32.unpack_from
    for i in range(first, stop):
        start = pos + 4
        if start > total:
            raise _cut_at_size(i, count, start)
        (size,) = unpack_from(payload, pos)
        if not 0 < size <= max_msg_size:
            raise _bad_size(i, size, max_msg_size)
        pos = start + size
        if pos > last:
            # The original would read on without end; here the whole body is limited.
            raise ProtocolError(E_BAD_BODY, f"MPUB body too big {pos - last} over the limit")
        if pos > total:
            raise _cut_in_body(i, count, pos)
        if bodies is not None:
            bodies.append(view_of(payload, start, pos))
    return pos


def read_batch(
    payload: bytes, start: int, *, max_msg_size: int, max_body_size: int, extended: bool = False
) -> tuple[Batch, int]:
    """The messages in *payload* from *start* (the count) on, and where they end.

    With *extended* they have headers. The sizes of the messages count, not the length of the payload: bytes
    behind the last message are left alone.

    Raises ProtocolError E_BAD_BODY or E_BAD_MESSAGE, as Truncated where the payload is too short, and TooLong
    when they are more than one slice.
    """
    pos = start + _COUNT_BYTES
    if pos > len(payload):
        raise Truncated(E_BAD_BODY, "MPUB failed to read message count", pos)
    count = check_count(payload, start, max_body_size)
    last = start + max_body_size
    if count > SLICE_MESSAGES:
        slices = Slices(payload, pos, count, max_msg_size=max_msg_size, last=last, extended=extended)
        # An error in the first messages is reported immediately.
        slices.take()
        raise TooLong(slices)
    if extended:
        bodies: list[Buffer] = []
        even = even_extended(payload, pos, count, max_msg_size)
        end = pos + (count * even.stride if even is not None else 0)
        if even is not None and end <= last:
            return even, end
        limit = max_msg_size + MAX_ADDED_BYTES
        end = check_sizes(payload, pos, 0, count, count, limit, last, bodies)
        return extended_batch(bodies, max_msg_size), end
    even = even_batch(payload, pos, count, max_msg_size)
    if even is not None and count * even.stride <= max_body_size:
        return even, pos + count * even.stride
    bodies = []
    end = check_sizes(payload, pos, 0, count, count, max_msg_size, last, bodies)
    return Batch(bodies, size=end - pos - count * SIZE_BYTES), end


def _bad_size(i: int, size: int, max_msg_size: int) -> ProtocolError:
    if size <= 0:
        return ProtocolError(E_BAD_MESSAGE, f"MPUB invalid message({i}) body size {size}")
    return ProtocolError(E_BAD_MESSAGE, f"MPUB message too big {size} > {max_msg_size}")


def _cut_at_size(i: int, count: int, need: int) -> Truncated:
    # The smallest size of the rest is added. Otherwise all bytes would be read again for each byte of a slow
    # peer.
    rest = (count - i) * _SMALLEST - _COUNT_BYTES
    return Truncated(E_BAD_MESSAGE, f"MPUB failed to read message({i}) body size", need + rest)


def _cut_in_body(i: int, count: int, need: int) -> Truncated:
    return Truncated(E_BAD_MESSAGE, "MPUB failed to read message body", need + (count - i - 1) * _SMALLEST)
