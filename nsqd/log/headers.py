"""The headers of messages: strings by name, as one JSON object before the body. Pure.

In a block with headers every body begins with an extension, as youzan's NSQ sends it to a subscriber with
``extend_support``: ``uint8 4 | uint16 length | JSON object``, or one byte 0 for a message that has none.
A block without headers has bodies and nothing else. So what was published without headers costs nothing, and
each kind of subscriber is sent one of the two kinds as it lies in the log.
"""

import json
from collections.abc import Mapping
from typing import Final

from nsqclient.wire.headers import EXT_JSON_HEADERS, EXT_NONE, MOST_HEADER_BYTES
from nsqd.log.frames import FRAME_OVERHEAD, SIZE, Block, Piece, piece_of

# The extension of a message that has no headers, and what that of one with headers begins with.
NO_HEADERS: Final = bytes((EXT_NONE,))
SOME_HEADERS: Final = bytes((EXT_JSON_HEADERS,))
LENGTH_BYTES: Final = 2
# Before the JSON object: the kind and the length.
_BEFORE_JSON: Final = 1 + LENGTH_BYTES
# Publishers repeat their headers; a traceparent is different each time.
_MAX_KNOWN: Final = 1024


class BadHeaders(ValueError):
    """These cannot be the headers of a message; the text says why."""


_known: Final[dict[bytes, bool]] = {}


def check(encoded: bytes) -> None:
    """See whether that is a JSON object of strings. Raises BadHeaders."""
    if encoded in _known:
        return
    _parse(encoded)
    if len(_known) >= _MAX_KNOWN:
        _known.clear()
    _known[encoded] = True


def extension(headers: Mapping[str, str]) -> bytes:
    """What stands before the body of a message with these headers. Raises BadHeaders."""
    if not headers:
        return NO_HEADERS
    if not all(isinstance(name, str) and isinstance(value, str) for name, value in headers.items()):
        raise BadHeaders("names and values are strings")
    return checked_extension(json.dumps(dict(headers), separators=(",", ":")).encode())


def checked_extension(encoded: bytes) -> bytes:
    """What stands before the body of a message with the headers of this JSON object. Raises BadHeaders."""
    if len(encoded) > MOST_HEADER_BYTES:
        raise BadHeaders(f"{len(encoded)} bytes are above {MOST_HEADER_BYTES}")
    check(encoded)
    return b"".join((SOME_HEADERS, len(encoded).to_bytes(LENGTH_BYTES, "big"), encoded))


def join(headers: Mapping[str, str], body: bytes) -> bytes:
    """A body with its extension, as it lies in a block with headers. Raises BadHeaders."""
    return extension(headers) + body


def split(extended: Piece) -> tuple[dict[str, str], bytes]:
    """The headers and the body that lie together in a block with headers. Raises BadHeaders."""
    begin = extension_bytes(extended, 0)
    if begin > len(extended):
        raise BadHeaders("they are cut off")
    headers = _parse(bytes(extended[_BEFORE_JSON:begin])) if begin > 1 else {}
    return headers, bytes(extended[begin:])


def message(block: Block, seq: int) -> tuple[dict[str, str], bytes]:
    """The headers and the body of one message, of a block of either kind. Raises BadHeaders."""
    frame = block.piece(seq, seq + 1)
    if block.has_headers:
        return split(frame[FRAME_OVERHEAD:])
    return {}, bytes(frame[FRAME_OVERHEAD:])


def extension_bytes(data: Piece, at: int) -> int:
    """How long the extension is that lies *at* this place. Raises BadHeaders."""
    kind = data[at] if at < len(data) else -1
    if kind == EXT_NONE:
        return 1
    if kind != EXT_JSON_HEADERS or at + _BEFORE_JSON > len(data):
        raise BadHeaders("they are cut off" if kind == EXT_JSON_HEADERS else f"extension {kind} is not known")
    return _BEFORE_JSON + int.from_bytes(data[at + 1 : at + _BEFORE_JSON], "big")


def frames_for(block: Block, start: int, end: int, *, extended: bool) -> Piece:
    """The frames as a subscriber gets them on the first attempt; to an *extended* one headers are sent."""
    return block.piece(start, end) if block.has_headers is extended else other_kind(block, start, end)


def other_kind(block: Block, start: int, end: int) -> bytes:
    """The frames of ``start <= seq < end`` for a subscriber of the other kind than the block.

    Of a block with headers they are without, of one without each says that it has none.
    """
    return _stripped(block, start, end) if block.has_headers else _extended(block, start, end)


def _stripped(block: Block, start: int, end: int) -> bytes:
    data = block.data
    at, stop = block.offset(start), block.offset(end)
    pieces: list[Piece] = []
    while at < stop:
        (size,) = SIZE.unpack_from(data, at)
        body, following = at + FRAME_OVERHEAD, at + 4 + size
        skipped = extension_bytes(data, body)
        pieces.append(SIZE.pack(size - skipped))
        pieces.append(data[at + 4 : body])
        pieces.append(piece_of(data, body + skipped, following))
        at = following
    return b"".join(pieces)


def _extended(block: Block, start: int, end: int) -> bytes:
    data = block.data
    at, stop = block.offset(start), block.offset(end)
    pieces: list[Piece] = []
    while at < stop:
        (size,) = SIZE.unpack_from(data, at)
        body, following = at + FRAME_OVERHEAD, at + 4 + size
        pieces.append(SIZE.pack(size + 1))
        pieces.append(data[at + 4 : body])
        pieces.append(NO_HEADERS)
        pieces.append(piece_of(data, body, following))
        at = following
    return b"".join(pieces)


def _parse(encoded: bytes) -> dict[str, str]:
    try:
        # Not left to json: it would take UTF-16 as well.
        headers = json.loads(encoded.decode())
    except (ValueError, RecursionError) as error:
        raise BadHeaders("they are not JSON") from error
    if not isinstance(headers, dict):
        raise BadHeaders("they are not a JSON object")
    for value in headers.values():
        if not isinstance(value, str):
            raise BadHeaders("names and values are strings")
    if b"\\" in encoded:
        # Half a surrogate pair can be written in JSON and nowhere else.
        try:
            "".join((*headers, *headers.values())).encode()
        except UnicodeEncodeError as error:
            raise BadHeaders("they are not Unicode") from error
    return headers
