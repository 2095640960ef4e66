"""The commands of a client, each as the bytes that go to nsqd.

Names and bodies are checked here, because nsqd answers a bad one by closing the connection, which would
take every command in the pipeline with it.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from nsqclient.wire.headers import encode_headers
from nsqclient.wire.message import MESSAGE_ID_BYTES
from nsqclient.wire.names import is_valid_name

MAGIC_V2: Final = b"  V2"
NOP: Final = b"NOP\n"
CLS: Final = b"CLS\n"

_SIZE: Final = Struct(">I")
_SIZE_AND_COUNT: Final = Struct(">II")


def identify(settings: Mapping[str, Any]) -> bytes:
    """Identify the client and its requested settings; nsqd answers with the granted ones."""
    return b"IDENTIFY\n" + _sized(json.dumps(settings).encode())


def auth(secret: str) -> bytes:
    """Authenticate; nsqd answers with the permissions."""
    return b"AUTH\n" + _sized(secret.encode())


def sub(topic: str, channel: str) -> bytes:
    """Subscribe this connection to a channel of a topic."""
    return b"SUB %b %b\n" % (_name("topic", topic), _name("channel", channel))


def pub(topic: str, body: bytes) -> bytes:
    """Publish one message."""
    return b"%b%b%b" % (_pub_line(topic), _SIZE.pack(len(body)), _body(body))


def pub_parts(topic: str, body: bytes) -> list[bytes]:
    """The same in pieces, for callers that join them with other commands."""
    return [_pub_line(topic), _SIZE.pack(len(body)), _body(body)]


def pub_ext(topic: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Publish one message with headers, to an nsqd that takes them."""
    extended = _with_headers(body, headers)
    return b"PUB_EXT %b\n" % _name("topic", topic) + _SIZE.pack(len(extended)) + extended


def mpub_ext(topic: str, bodies: Sequence[bytes], headers: Mapping[str, str]) -> bytes:
    """Publish several messages that have the same headers, all or none."""
    messages = mpub_parts(topic, [_with_headers(body, headers) for body in bodies])
    messages[0] = b"MPUB_EXT" + messages[0].removeprefix(b"MPUB")
    return b"".join(messages)


def _with_headers(body: bytes, headers: Mapping[str, str]) -> bytes:
    return encode_headers(headers) + _body(body)


@lru_cache(1024)
def _pub_line(topic: str) -> bytes:
    # Cached because checking the name takes longer than the rest of a publish, and programs have few topics.
    return b"PUB %b\n" % _name("topic", topic)


def check_topic(topic: str) -> None:
    """Raise ValueError when *topic* is not a valid name."""
    _pub_line(topic)


def mpub(topic: str, bodies: Sequence[bytes]) -> bytes:
    """Publish several messages, all or none."""
    return b"".join(mpub_parts(topic, bodies))


def mpub_parts(topic: str, bodies: Sequence[bytes]) -> list[bytes]:
    """The same in pieces, for callers that join them with other commands."""
    if not bodies:
        raise ValueError("MPUB needs at least one message")
    parts = [b"", b""]
    size = 4
    for body in bodies:
        length = len(_body(body))
        size += 4 + length
        parts += (_SIZE.pack(length), body)
    parts[0] = b"MPUB %b\n" % _name("topic", topic)
    parts[1] = _SIZE_AND_COUNT.pack(size, len(bodies))
    return parts


def dpub(topic: str, body: bytes, delay_ms: int) -> bytes:
    """Publish one message that becomes visible after a delay."""
    return b"DPUB %b %d\n" % (_name("topic", topic), _not_negative("delay", delay_ms)) + _sized(_body(body))


def rdy(count: int) -> bytes:
    """Allow nsqd to have this many messages in flight on this connection."""
    return b"RDY %d\n" % _not_negative("RDY count", count)


def fin(message_id: bytes) -> bytes:
    """The message is done."""
    return b"FIN %b\n" % _message_id(message_id)


def req(message_id: bytes, delay_ms: int) -> bytes:
    """The message returns to its channel, immediately or after a delay."""
    return b"REQ %b %d\n" % (_message_id(message_id), _not_negative("delay", delay_ms))


def touch(message_id: bytes) -> bytes:
    """The message needs more time; its timeout starts again."""
    return b"TOUCH %b\n" % _message_id(message_id)


def _sized(body: bytes) -> bytes:
    return _SIZE.pack(len(body)) + body


def _name(kind: str, name: str) -> bytes:
    if not is_valid_name(name):
        raise ValueError(f"{kind} name {name!r} is not valid")
    return name.encode("ascii")


def _body(body: bytes) -> bytes:
    if not body:
        raise ValueError("a message must not be empty")
    return body


def _message_id(message_id: bytes) -> bytes:
    if len(message_id) != MESSAGE_ID_BYTES:
        raise ValueError(f"message id {message_id!r} is not of {MESSAGE_ID_BYTES} bytes")
    return message_id


def _not_negative(kind: str, number: int) -> int:
    if number < 0:
        raise ValueError(f"{kind} {number} is negative")
    return number
