"""The headers of a message, as youzan's NSQ writes them: ``uint8 kind | uint16 length | JSON object | body``.

They precede the body of each message on a connection with ``extend_support``; kind 0 means no headers.
"""

import json
from collections.abc import Mapping
from struct import Struct
from typing import Final

from nsqclient.wire.frames import FrameError

EXT_NONE: Final = 0
EXT_JSON_HEADERS: Final = 4
# The largest length that two bytes can express.
MAX_HEADER_BYTES: Final = 65_535
_LENGTH: Final = Struct(">H")


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """Length and JSON, as they precede the body of a publish."""
    if not all(isinstance(name, str) and isinstance(text, str) for name, text in headers.items()):
        raise TypeError("the names and the values of headers are text")
    encoded = json.dumps(dict(headers), ensure_ascii=False).encode()
    if len(encoded) > MAX_HEADER_BYTES:
        raise ValueError(f"headers of {len(encoded)} bytes are above {MAX_HEADER_BYTES}")
    return _LENGTH.pack(len(encoded)) + encoded


def parse_extended(data: bytes) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a message to a connection with ``extend_support``; raises FrameError."""
    kind = data[0] if data else -1
    if kind == EXT_NONE:
        return {}, data[1:]
    if kind != EXT_JSON_HEADERS:
        raise FrameError(f"extension {kind} of a message is not known")
    body_at = 3 + _LENGTH.unpack_from(data, 1)[0] if len(data) >= 3 else 3
    if body_at > len(data):
        raise FrameError("the headers of a message are cut off")
    try:
        headers = json.loads(data[3:body_at])
    except (ValueError, RecursionError) as error:
        raise FrameError("the headers of a message are no JSON") from error
    if not isinstance(headers, dict):
        raise FrameError("the headers of a message are no JSON object")
    # Publishers of youzan's NSQ may send values other than text.
    texts = {
        name: text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
        for name, text in headers.items()
    }
    return texts, data[body_at:]
