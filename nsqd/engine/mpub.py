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


def check_count(payload: bytes, start: int, max_body_size: int) -> int:
    """The number of messages that *payload* announces at *start*. Raises ProtocolError E_BAD_BODY."""
    count = int(_INT32.unpack_from(payload, start)[0])
    if count <= 0 or count > (max_body_size - _COUNT_BYTES) // _SMALLEST:
        raise ProtocolError(E_BAD_BODY, f"MPUB invalid message count {count}")
    return count


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
        raise Truncated(E_BAD_BODY, "MPUB failed to read message count")
    count = check_count(payload, start, max_body_size)
    if pos + 4 <= len(payload):
        (size,) = _INT32.unpack_from(payload, pos)
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
            raise Truncated(E_BAD_MESSAGE, f"MPUB failed to read message({i}) body size")
        (size,) = unpack_from(payload, pos)
        if size <= 0:
            raise ProtocolError(E_BAD_MESSAGE, f"MPUB invalid message({i}) body size {size}")
        if size > max_msg_size:
            raise ProtocolError(E_BAD_MESSAGE, f"MPUB message too big {size} > {max_msg_size}")
        pos = start + size
        if pos > last:
            # The original would read on for ever; the body is limited as a whole.
            raise ProtocolError(E_BAD_BODY, f"MPUB body too big {pos - last} over the limit")
        if pos > total:
            raise Truncated(E_BAD_MESSAGE, "MPUB failed to read message body")
        append(payload[start:pos])
    topic.publish_bodies(bodies, now_ns)
    return pos
