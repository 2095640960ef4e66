"""Messages published with headers: ``uint16 length | JSON object | body``, as youzan's NSQ takes them."""

import struct
from functools import lru_cache
from typing import Final

from nsqclient.wire.errors import E_BAD_BODY, E_BAD_MESSAGE, E_INVALID_JSON_HEADER, ProtocolError
from nsqclient.wire.headers import MAX_HEADER_BYTES
from nsqd.log.encoder import MAX_EVEN, MIN_EVEN, SIZE_BYTES, Batch
from nsqd.log.frames import Buffer, view_of
from nsqd.log.headers import LENGTH_BYTES, NO_HEADERS, SOME_HEADERS, BadHeaders, check, check_alike

# The size of a message, and the length of its headers.
SIZES: Final = struct.Struct(">iH")
_UINT16: Final = struct.Struct(">H")
# Headers come on top of the largest body: any legal message can be forwarded with some headers added.
MAX_ADDED_BYTES: Final = LENGTH_BYTES + MAX_HEADER_BYTES


def body_start(word: str, data: Buffer, start: int, end: int, max_msg_size: int) -> int:
    """Where the body begins in the message at ``start <= offset < end``. Raises ProtocolError."""
    body = start + LENGTH_BYTES
    if body <= end:
        body += int(_UINT16.unpack_from(data, start)[0])
    if body >= end:
        raise ProtocolError(E_BAD_BODY, f"{word} invalid body size {end - start} with headers")
    if end - body > max_msg_size:
        raise ProtocolError(E_BAD_MESSAGE, f"{word} message too big {end - body} > {max_msg_size}")
    if body - start > LENGTH_BYTES:
        check_headers(word, bytes(data[start + LENGTH_BYTES : body]))
    return body


def check_headers(word: str, encoded: bytes) -> None:
    """Check that these can be the headers of a message. Raises ProtocolError."""
    try:
        check(encoded)
    except BadHeaders as error:
        raise _bad(word, error) from error


def _bad(word: str, error: BadHeaders) -> ProtocolError:
    return ProtocolError(E_INVALID_JSON_HEADER, f"{word} invalid headers: {error}")


def message(data: bytes, start: int, end: int, max_msg_size: int) -> tuple[bytes, Buffer]:
    """The extension, as it is stored, and the body. Raises ProtocolError."""
    body = body_start("PUB_EXT", data, start, end, max_msg_size)
    extension = NO_HEADERS if body == start + LENGTH_BYTES else SOME_HEADERS + data[start:body]
    return extension, view_of(data, body, end)


@lru_cache(maxsize=64)
def _headers(length: int, rest: int, count: int) -> struct.Struct:
    """Cuts out headers of *length* bytes, behind two sizes and before *rest* bytes of body."""
    return struct.Struct(f"6x{length}s{rest}x" * count)


def even_batch(payload: bytes, start: int, count: int, max_msg_size: int) -> Batch | None:
    """The *count* messages in *payload* from *start* on, if all have headers and are of one size.

    None otherwise. Raises ProtocolError.
    """
    if not MIN_EVEN <= count <= MAX_EVEN or start + SIZES.size > len(payload):
        return None
    size, length = SIZES.unpack_from(payload, start)
    stride, rest = SIZE_BYTES + size, size - LENGTH_BYTES - length
    end = start + count * stride
    if not length or not 0 < rest <= max_msg_size or end > len(payload):
        return None
    cells = bytearray(memoryview(payload)[start:end])
    for column in range(SIZES.size):
        if cells[column::stride] != payload[start + column : start + column + 1] * count:
            return None
    try:
        check_alike(_headers(length, rest, count).unpack(cells))
    except BadHeaders as error:
        raise _bad("MPUB_EXT", error) from error
    # The kind of the extension overwrites the last byte of each size, which the encoder does not need.
    cells[SIZE_BYTES - 1 :: stride] = SOME_HEADERS * count
    found = Batch((), size=count * (1 + size), has_headers=True)
    found.extension_bytes = count * (1 + LENGTH_BYTES + length)
    found.count = count
    found.cells = cells
    found.stride = stride
    found.spare = SIZE_BYTES - 1
    return found


def batch(messages: list[Buffer], max_msg_size: int) -> Batch:
    """The messages of MPUB_EXT as they are stored. Raises ProtocolError."""
    bodies: list[Buffer] = []
    extension_bytes = 0
    for one in messages:
        body = body_start("MPUB_EXT", one, 0, len(one), max_msg_size)
        if body == LENGTH_BYTES:
            extension_bytes += 1
            bodies.append(b"".join((NO_HEADERS, one[LENGTH_BYTES:])))
        else:
            extension_bytes += 1 + body
            bodies.append(b"".join((SOME_HEADERS, one)))
    return Batch(bodies, has_headers=True, extension_bytes=extension_bytes)
