"""The headers of messages: strings by name, as one JSON object before the body. Pure.

In a block with headers every body begins with an extension, as youzan's NSQ sends it to a subscriber with
``extend_support``: ``uint8 4 | uint16 length | JSON object``, or one byte 0 for a message that has none.
A block without headers has only bodies. So messages without headers cost nothing extra, and each kind of
subscriber gets one of the two kinds of block without any change.
"""

import json
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from nsqclient.wire.headers import EXT_JSON_HEADERS, EXT_NONE, MAX_HEADER_BYTES
from nsqd.log.frames import FRAME_OVERHEAD, SIZE, Block, Buffer, view_of

# The extension of a message without headers, and the first byte of the extension of one with headers.
NO_HEADERS: Final = bytes((EXT_NONE,))
SOME_HEADERS: Final = bytes((EXT_JSON_HEADERS,))
LENGTH_BYTES: Final = 2
# Bytes before the JSON object: the kind and the length.
_BEFORE_JSON: Final = 1 + LENGTH_BYTES
# The smallest and the largest number of frames of one size that one step changes, powers of two.
_FEWEST: Final = 16
_MAX_STEP_FRAMES: Final = 256
# As strict as json and ten times as fast. The error texts come from json.
_STRINGS: Final = msgspec.json.Decoder(dict[str, str])
# Characters that have no special meaning in a JSON string; `_ALIKE` maps all of them to one.
_PLAIN: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_./"
_ALIKE: Final = bytes.maketrans(_PLAIN, b"x" * len(_PLAIN))


class BadHeaders(ValueError):
    """These cannot be the headers of a message; the text says why."""


def check(encoded: bytes) -> None:
    """Check that *encoded* is a JSON object of strings. Raises BadHeaders."""
    try:
        _STRINGS.decode(encoded)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        _parse_slowly(encoded)


def check_all(encoded: Sequence[bytes]) -> None:
    """Check several like :func:`check`. Raises BadHeaders."""
    try:
        deque(map(_STRINGS.decode, encoded), maxlen=0)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        for one in encoded:
            check(one)


def check_alike(encoded: Sequence[bytes]) -> None:
    """Check several that are equally long. Raises BadHeaders.

    If the others differ from the first only in plain characters that are replaced by other plain ones, they
    differ only inside strings, because an object of strings has no plain characters outside of them. Then all
    are headers if the first one is.
    """
    first = encoded[0]
    alike = first.translate(_ALIKE) * len(encoded)
    if b"\\" in first or b"".join(encoded).translate(_ALIKE) != alike:
        check_all(encoded)
    else:
        check(first)


def extension(headers: Mapping[Any, Any]) -> bytes:
    """The extension before the body of a message with these headers. Raises BadHeaders."""
    if not headers:
        return NO_HEADERS
    if not all(isinstance(name, str) and isinstance(value, str) for name, value in headers.items()):
        raise BadHeaders("names and values are strings")
    return checked_extension(json.dumps(dict(headers), separators=(",", ":")).encode())


def checked_extension(encoded: bytes) -> bytes:
    """The extension before the body of a message with the headers in this JSON object. Raises BadHeaders."""
    if len(encoded) > MAX_HEADER_BYTES:
        raise BadHeaders(f"{len(encoded)} bytes are above {MAX_HEADER_BYTES}")
    check(encoded)
    return b"".join((SOME_HEADERS, len(encoded).to_bytes(LENGTH_BYTES, "big"), encoded))


def join(headers: Mapping[Any, Any], body: bytes) -> bytes:
    """A body with its extension, in the format of a block with headers. Raises BadHeaders."""
    return extension(headers) + body


def split(extended: Buffer) -> tuple[dict[str, str], bytes]:
    """The headers and the body of *extended*, which is in a block with headers. Raises BadHeaders."""
    begin = extension_bytes(extended, 0)
    if begin > len(extended):
        raise BadHeaders("they are cut off")
    headers = _parse(bytes(extended[_BEFORE_JSON:begin])) if begin > 1 else {}
    return headers, bytes(extended[begin:])


def message(block: Block, seq: int) -> tuple[dict[str, str], bytes]:
    """The headers and the body of one message of a block, with headers or without. Raises BadHeaders."""
    frame = block.view(seq, seq + 1)
    if block.has_headers:
        return split(frame[FRAME_OVERHEAD:])
    return {}, bytes(frame[FRAME_OVERHEAD:])


def extension_bytes(data: Buffer, at: int) -> int:
    """The length in bytes of the extension at the offset *at*. Raises BadHeaders."""
    kind = data[at] if at < len(data) else -1
    if kind == EXT_NONE:
        return 1
    if kind != EXT_JSON_HEADERS or at + _BEFORE_JSON > len(data):
        raise BadHeaders("they are cut off" if kind == EXT_JSON_HEADERS else f"extension {kind} is not known")
    return _BEFORE_JSON + int.from_bytes(data[at + 1 : at + _BEFORE_JSON], "big")


def frames_for(block: Block, start: int, end: int, *, extended: bool) -> Buffer:
    """The frames as a subscriber gets them on the first attempt; only an *extended* one gets headers."""
    return block.view(start, end) if block.has_headers is extended else other_kind(block, start, end)


def other_kind(block: Block, start: int, end: int) -> bytes:
    """The frames of ``start <= seq < end`` for a subscriber of the other kind than the block.

    From a block with headers the extensions are removed. In a block without headers each frame gets the
    extension that says that there are none.
    """
    return _stripped(block, start, end) if block.has_headers else _extended(block, start, end)


def _stripped(block: Block, start: int, end: int) -> bytes:
    data, stride = block.data, block.stride
    at, stop = block.offset(start), block.offset(end)
    pieces: list[Buffer] = []
    while at < stop:
        count = _frames_per_step(stride, stop - at)
        if count:
            skipped = extension_bytes(data, at + FRAME_OVERHEAD)
            following = at + count * stride
            if _have_same_prefix(data, at, following, stride, min(skipped, _BEFORE_JSON), count):
                pieces += _cut(data, at, stride, skipped, count, -skipped)
                at = following
                continue
        # Frames of another size or with other headers are usually single, so only a few are changed one by
        # one.
        for _ in range(min(count, _FEWEST) or 1):
            (size,) = SIZE.unpack_from(data, at)
            body, following = at + FRAME_OVERHEAD, at + SIZE.size + size
            skipped = extension_bytes(data, body)
            pieces.append(SIZE.pack(size - skipped))
            pieces.append(data[at + SIZE.size : body])
            pieces.append(view_of(data, body + skipped, following))
            at = following
    return b"".join(pieces)


def _extended(block: Block, start: int, end: int) -> bytes:
    data, stride = block.data, block.stride
    at, stop = block.offset(start), block.offset(end)
    pieces: list[Buffer] = []
    while at < stop:
        count = _frames_per_step(stride, stop - at)
        if count:
            pieces.append(NO_HEADERS.join(_cut(data, at, stride, 0, count, len(NO_HEADERS))))
            at += count * stride
            continue
        (size,) = SIZE.unpack_from(data, at)
        body, following = at + FRAME_OVERHEAD, at + SIZE.size + size
        pieces.append(SIZE.pack(size + len(NO_HEADERS)))
        pieces.append(data[at + SIZE.size : body])
        pieces.append(NO_HEADERS)
        pieces.append(view_of(data, body, following))
        at = following
    return b"".join(pieces)


def _frames_per_step(stride: int, size: int) -> int:
    """How many of the frames in *size* bytes one step changes; 0 when they are changed one by one."""
    if not stride or size < _FEWEST * stride:
        return 0
    return min(_MAX_STEP_FRAMES, 1 << (size // stride).bit_length() - 1)


def _have_same_prefix(data: bytes, at: int, end: int, stride: int, length: int, count: int) -> bool:
    """Whether the first *length* bytes of all these *count* extensions are the same."""
    body = at + FRAME_OVERHEAD
    return all(
        data[place:end:stride] == data[place : place + 1] * count for place in range(body, body + length)
    )


def _cut(data: bytes, at: int, stride: int, skipped: int, count: int, more: int) -> Sequence[bytes]:
    """Cut *count* frames of one size, with *more* added to their size fields and *skipped* bytes left out.

    The first part is the head of the first frame. Each other part reaches from one body to the next,
    without the first *skipped* bytes of the body.
    """
    cells = bytearray(memoryview(data)[at : at + count * stride])
    size = SIZE.pack(stride - SIZE.size + more)
    for column in range(SIZE.size):
        if cells[column] != size[column]:
            cells[column::stride] = size[column : column + 1] * count
    return _frames_of(stride, skipped, count).unpack(cells)


@lru_cache(maxsize=256)
def _frames_of(stride: int, skipped: int, count: int) -> struct.Struct:
    rest = stride - FRAME_OVERHEAD - skipped
    each = f"{skipped}x{stride - skipped}s"
    return struct.Struct(f"{FRAME_OVERHEAD}s{each * (count - 1)}{skipped}x{rest}s")


def _parse(encoded: bytes) -> dict[str, str]:
    try:
        return _STRINGS.decode(encoded)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _parse_slowly(encoded)


def _parse_slowly(encoded: bytes) -> dict[str, str]:
    try:
        # Decoded here, because json would also accept UTF-16.
        headers = json.loads(encoded.decode())
    except (ValueError, RecursionError) as error:
        raise BadHeaders("they are not JSON") from error
    if not isinstance(headers, dict):
        raise BadHeaders("they are not a JSON object")
    for value in headers.values():
        if not isinstance(value, str):
            raise BadHeaders("names and values are strings")
    if b"\\" in encoded:
        # Half a surrogate pair can be written in JSON but not in UTF-8.
        try:
            "".join((*headers, *headers.values())).encode()
        except UnicodeEncodeError as error:
            raise BadHeaders("they are not Unicode") from error
    return headers
