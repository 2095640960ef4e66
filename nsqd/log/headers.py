"""The headers of messages: strings by name, as one JSON object before the body. Pure.

In a block with headers every body begins with an extension, as youzan's NSQ sends it to a subscriber with
``extend_support``: ``uint8 4 | uint16 length | JSON object``, or one byte 0 for a message that has none.
A block without headers has bodies and nothing else. So what was published without headers costs nothing, and
each kind of subscriber is sent one of the two kinds as it lies in the log.
"""

import json
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from nsqclient.wire.headers import EXT_JSON_HEADERS, EXT_NONE, MOST_HEADER_BYTES
from nsqd.log.frames import FRAME_OVERHEAD, SIZE, Block, Piece, piece_of

# The extension of a message that has no headers, and what that of one with headers begins with.
NO_HEADERS: Final = bytes((EXT_NONE,))
SOME_HEADERS: Final = bytes((EXT_JSON_HEADERS,))
LENGTH_BYTES: Final = 2
# Before the JSON object: the kind and the length.
_BEFORE_JSON: Final = 1 + LENGTH_BYTES
# Frames of one size that are changed in one go.
_AT_ONCE: Final = 32
# As strict as json, and ten times as fast; what is wrong json tells.
_STRINGS: Final = msgspec.json.Decoder(dict[str, str])


class BadHeaders(ValueError):
    """These cannot be the headers of a message; the text says why."""


def check(encoded: bytes) -> None:
    """See whether that is a JSON object of strings. Raises BadHeaders."""
    try:
        _STRINGS.decode(encoded)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        _parse_slowly(encoded)


def check_all(encoded: Sequence[bytes]) -> None:
    """The same of several. Raises BadHeaders."""
    try:
        deque(map(_STRINGS.decode, encoded), maxlen=0)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        for one in encoded:
            check(one)


def extension(headers: Mapping[Any, Any]) -> bytes:
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


def join(headers: Mapping[Any, Any], body: bytes) -> bytes:
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
        if block.stride and stop - at >= _AT_ONCE * block.stride:
            skipped = extension_bytes(data, at + FRAME_OVERHEAD)
            following = at + _AT_ONCE * block.stride
            if _begin_alike(data, at, following, block.stride, min(skipped, _BEFORE_JSON)):
                pieces += _cut(data, at, block.stride, skipped, b"")
                at = following
                continue
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
        if block.stride and stop - at >= _AT_ONCE * block.stride:
            pieces += _cut(data, at, block.stride, 0, NO_HEADERS)
            at += _AT_ONCE * block.stride
            continue
        (size,) = SIZE.unpack_from(data, at)
        body, following = at + FRAME_OVERHEAD, at + 4 + size
        pieces.append(SIZE.pack(size + 1))
        pieces.append(data[at + 4 : body])
        pieces.append(NO_HEADERS)
        pieces.append(piece_of(data, body, following))
        at = following
    return b"".join(pieces)


def _begin_alike(data: bytes, at: int, end: int, stride: int, count: int) -> bool:
    """Whether the first *count* bytes of all these extensions are the same."""
    body = at + FRAME_OVERHEAD
    return all(
        data[place:end:stride] == data[place : place + 1] * _AT_ONCE for place in range(body, body + count)
    )


def _cut(data: bytes, at: int, stride: int, skipped: int, extension: bytes) -> list[Piece]:
    """Frames of one size from *at* on, with *extension* where so many bytes are *skipped*."""
    size = SIZE.pack(stride - 4 - skipped + len(extension))
    found = _frames_of(stride, skipped).unpack_from(data, at)
    pieces: list[Piece] = [size] * (4 * _AT_ONCE)
    pieces[1::4] = found[0::2]
    pieces[2::4] = [extension] * _AT_ONCE
    pieces[3::4] = found[1::2]
    return pieces


@lru_cache(maxsize=64)
def _frames_of(stride: int, skipped: int) -> struct.Struct:
    """Cuts what lies behind the size of each frame, and behind what is skipped."""
    head = FRAME_OVERHEAD - SIZE.size
    return struct.Struct(f"4x{head}s{skipped}x{stride - FRAME_OVERHEAD - skipped}s" * _AT_ONCE)


def _parse(encoded: bytes) -> dict[str, str]:
    try:
        return _STRINGS.decode(encoded)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _parse_slowly(encoded)


def _parse_slowly(encoded: bytes) -> dict[str, str]:
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
