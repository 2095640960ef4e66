"""The body of MPUB, and of binary /mpub: ``uint32 count | count x (uint32 size | bytes)``."""

import struct
from typing import Final

from nsqcore.wire.errors import E_BAD_BODY, E_BAD_MESSAGE, ProtocolError
from nsqd.engine.topic import Topic

_INT32: Final = struct.Struct(">i")
_COUNT_BYTES: Final = 4
# the smallest message: its size field and one byte
_SMALLEST: Final = 5


class Truncated(ProtocolError):
    """The payload ends before the messages do; what the client is told if the rest never comes."""

    def __init__(self, code: str, text: str, need: int) -> None:
        """*need* is how long the payload has to be at least."""
        super().__init__(code, text)
        self.need = need


def check_count(payload: bytes, start: int, max_body_size: int) -> int:
    """The number of messages that *payload* announces at *start*. Raises ProtocolError E_BAD_BODY."""
    count = int(_INT32.unpack_from(payload, start)[0])
    if count <= 0 or count > (max_body_size - _COUNT_BYTES) // _SMALLEST:
        raise ProtocolError(E_BAD_BODY, f"MPUB invalid message count {count}")
    return count


def check_sizes(payload: bytes, start: int, max_msg_size: int, max_body_size: int) -> None:
    """See whether the messages from *start* (the count) on are all there and of legal size.

    Raises ProtocolError as :func:`publish_messages` does.
    """
    total = len(payload)
    pos = start + _COUNT_BYTES
    if pos > total:
        raise Truncated(E_BAD_BODY, "MPUB failed to read message count", pos)
    count = check_count(payload, start, max_body_size)
    for i in range(count):
        body = pos + 4
        if body > total:
            raise _cut_at_size(i, count, body)
        (size,) = _INT32.unpack_from(payload, pos)
        if not 0 < size <= max_msg_size:
            raise _bad_size(i, size, max_msg_size)
        pos = body + size
        if pos > total:
            raise _cut_in_body(i, count, pos)


def publish_messages(
    topic: Topic, payload: bytes, start: int, now_ns: int, *, max_msg_size: int, max_body_size: int
) -> tuple[int, int]:
    """Stage the messages that lie in *payload* from *start* (the count) on; returns (count, end).

    Nothing is staged unless all of them are there and of legal size. What counts is the sizes of the
    messages, not the length of the payload: bytes after the last one are left alone.

    Raises ProtocolError E_BAD_BODY or E_BAD_MESSAGE, of the kind Truncated where the payload is too short.
    """
    pos = start + _COUNT_BYTES
    if pos > len(payload):
        raise Truncated(E_BAD_BODY, "MPUB failed to read message count", pos)
    count = check_count(payload, start, max_body_size)
    if pos + 4 <= len(payload):
        (size,) = _INT32.unpack_from(payload, pos)
        if count == 1 and 0 < size <= max_msg_size and pos + 4 + size <= len(payload):
            topic.publish(payload[pos + 4 : pos + 4 + size], now_ns)
            return 1, pos + 4 + size
        if (
            0 < size <= max_msg_size
            and count * (size + 4) <= max_body_size
            and topic.publish_batch(payload, pos, count, now_ns)
        ):
            return count, pos + count * (4 + size)
    return count, _publish_one_by_one(topic, payload, pos, count, now_ns, max_msg_size, start + max_body_size)


def _publish_one_by_one(
    topic: Topic, payload: bytes, pos: int, count: int, now_ns: int, max_msg_size: int, last: int
) -> int:
    total = len(payload)
    unpack_from = _INT32.unpack_from
    bodies: list[bytes] = []
    append = bodies.append
    for i in range(count):
        start = pos + 4
        if start > total:
            raise _cut_at_size(i, count, start)
        (size,) = unpack_from(payload, pos)
        if not 0 < size <= max_msg_size:
            raise _bad_size(i, size, max_msg_size)
        pos = start + size
        if pos > last:
            # The original would read on for ever; the body is limited as a whole.
            raise ProtocolError(E_BAD_BODY, f"MPUB body too big {pos - last} over the limit")
        if pos > total:
            raise _cut_in_body(i, count, pos)
        append(payload[start:pos])
    topic.publish_bodies(bodies, now_ns)
    return pos


def _bad_size(i: int, size: int, max_msg_size: int) -> ProtocolError:
    if size <= 0:
        return ProtocolError(E_BAD_MESSAGE, f"MPUB invalid message({i}) body size {size}")
    return ProtocolError(E_BAD_MESSAGE, f"MPUB message too big {size} > {max_msg_size}")


def _cut_at_size(i: int, count: int, need: int) -> Truncated:
    # Counting on the rest keeps a peer that sends drop by drop from having it all read again for each.
    rest = (count - i) * _SMALLEST - _COUNT_BYTES
    return Truncated(E_BAD_MESSAGE, f"MPUB failed to read message({i}) body size", need + rest)


def _cut_in_body(i: int, count: int, need: int) -> Truncated:
    return Truncated(E_BAD_MESSAGE, "MPUB failed to read message body", need + (count - i - 1) * _SMALLEST)
