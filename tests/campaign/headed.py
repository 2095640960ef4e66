"""Headers in the campaigns: which messages have them, and whether they keep them."""

import json
import struct
from typing import Final

from nsqd.engine.dedup import HEADER
from nsqd.log.frames import Block
from nsqd.log.headers import message, split

# Bodies of messages with headers begin with this, followed by a number.
HEADED: Final = b"headed  "
# Bodies of messages with an id, and of repeats of such messages, which also contain the first one's number.
UNIQUE: Final = b"unique  "
REPEAT: Final = b"repeat  "
_NAME_BYTES: Final = 14
_ID: Final = {UNIQUE: slice(8, 14), REPEAT: slice(15, 21)}


def expected(body: bytes) -> dict[str, str]:
    """Return the headers with which a message with this body was published."""
    place = _ID.get(bytes(body[:8]))
    if place is not None:
        return {"of": body[:_NAME_BYTES].decode(), HEADER: body[place].decode()}
    return {"of": body[:_NAME_BYTES].decode()} if body.startswith(HEADED) else {}


def id_of(body: bytes) -> str:
    """Return the id under which a message with this body is stored only once; empty without an id."""
    return expected(body).get(HEADER, "")


def with_headers(body: bytes) -> bytes:
    """Return a message as PUB_EXT has it; without headers their length is 0."""
    headers = expected(body)
    encoded = json.dumps(headers).encode() if headers else b""
    return struct.pack(">H", len(encoded)) + encoded + body


def body_of(extended: bytes) -> bytes:
    """Return the body of a message with headers; a body that no client published if the headers are wrong."""
    return _judged(*split(extended))


def body_in(block: Block, seq: int) -> bytes:
    """Do the same for a message in a block with or without headers."""
    return _judged(*message(block, seq))


def _judged(headers: dict[str, str], body: bytes) -> bytes:
    # A dead letter has additional headers.
    own = {name: value for name, value in headers.items() if not name.startswith("dead-")}
    return body if own == expected(body) else b"with other headers: " + body
