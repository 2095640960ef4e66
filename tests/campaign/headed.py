"""Headers in the campaigns: which messages have some, and whether they still have them."""

import json
import struct
from typing import Final

from nsqd.engine.dedup import HEADER
from nsqd.log.frames import Block
from nsqd.log.headers import message, split

# What the bodies of messages with headers begin with; then comes a number.
HEADED: Final = b"headed  "
# Those that have an id besides, and those that say that they are one of these once more: its number follows.
UNIQUE: Final = b"unique  "
REPEAT: Final = b"repeat  "
_NAME_BYTES: Final = 14
_ID: Final = {UNIQUE: slice(8, 14), REPEAT: slice(15, 21)}


def expected(body: bytes) -> dict[str, str]:
    """The headers that a message with this body was published with."""
    place = _ID.get(bytes(body[:8]))
    if place is not None:
        return {"of": body[:_NAME_BYTES].decode(), HEADER: body[place].decode()}
    return {"of": body[:_NAME_BYTES].decode()} if body.startswith(HEADED) else {}


def id_of(body: bytes) -> str:
    """What a message with this body is published as once and no more; empty for any number of times."""
    return expected(body).get(HEADER, "")


def with_headers(body: bytes) -> bytes:
    """A message as PUB_EXT has it; one without headers says so with a length of 0."""
    headers = expected(body)
    encoded = json.dumps(headers).encode() if headers else b""
    return struct.pack(">H", len(encoded)) + encoded + body


def body_of(extended: bytes) -> bytes:
    """The body of a message that came with headers; one that nobody published if they are not its own."""
    return _judged(*split(extended))


def body_in(block: Block, seq: int) -> bytes:
    """The same of a message in a block of either kind."""
    return _judged(*message(block, seq))


def _judged(headers: dict[str, str], body: bytes) -> bytes:
    # A dead letter has its own besides those of its message.
    own = {name: value for name, value in headers.items() if not name.startswith("dead-")}
    return body if own == expected(body) else b"with other headers: " + body
