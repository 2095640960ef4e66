"""Messages published with headers: ``uint16 length | JSON object | body``, as youzan's NSQ takes them."""

import struct
from typing import Final

from nsqclient.wire.errors import E_BAD_BODY, E_BAD_MESSAGE, E_INVALID_JSON_HEADER, ProtocolError
from nsqclient.wire.headers import MOST_HEADER_BYTES
from nsqd.log.batches import Batch
from nsqd.log.frames import Piece, piece_of
from nsqd.log.headers import LENGTH_BYTES, NO_HEADERS, SOME_HEADERS, BadHeaders, check

_UINT16: Final = struct.Struct(">H")
# Headers come on top of what a message may have: a message of any legal size can be sent on with some.
MOST_MORE_BYTES: Final = LENGTH_BYTES + MOST_HEADER_BYTES


def body_start(word: str, data: Piece, start: int, end: int, max_msg_size: int) -> int:
    """Where the body begins of the message at ``start <= offset < end``. Raises ProtocolError."""
    body = start + LENGTH_BYTES
    if body <= end:
        body += int(_UINT16.unpack_from(data, start)[0])
    if body >= end:
        raise ProtocolError(E_BAD_BODY, f"{word} invalid body size {end - start} with headers")
    if end - body > max_msg_size:
        raise ProtocolError(E_BAD_MESSAGE, f"{word} message too big {end - body} > {max_msg_size}")
    if body - start > LENGTH_BYTES:
        try:
            check(bytes(data[start + LENGTH_BYTES : body]))
        except BadHeaders as error:
            raise ProtocolError(E_INVALID_JSON_HEADER, f"{word} invalid headers: {error}") from error
    return body


def message(data: bytes, start: int, end: int, max_msg_size: int) -> tuple[bytes, Piece]:
    """The extension, as it is stored, and the body. Raises ProtocolError."""
    body = body_start("PUB_EXT", data, start, end, max_msg_size)
    extension = NO_HEADERS if body == start + LENGTH_BYTES else SOME_HEADERS + data[start:body]
    return extension, piece_of(data, body, end)


def batch(messages: list[Piece], max_msg_size: int) -> Batch:
    """The messages of MPUB_EXT as they are stored. Raises ProtocolError."""
    bodies: list[Piece] = []
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
