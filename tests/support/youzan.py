"""A client of youzan's NSQ, written from its documents: headers before bodies, partitions in commands."""

import json
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.support.wire import Wire, size, sized

NO_EXT: Final = 0
JSON_HEADER: Final = 4


class Extended(NamedTuple):
    """A message as consumers get it."""

    id: bytes
    attempts: int
    version: int
    headers: bytes
    body: bytes


def with_header(encoded: bytes, body: bytes) -> bytes:
    """``2-byte header length | header | body``."""
    return struct.pack(">H", len(encoded)) + encoded + body


def pub_ext(topic: str, encoded: bytes, body: bytes, partition: str = "") -> bytes:
    return b"PUB_EXT %b\n" % _target(topic, partition) + sized(with_header(encoded, body))


def mpub_ext(topic: str, *messages: tuple[bytes, bytes], partition: str = "") -> bytes:
    batch = size(len(messages)) + b"".join(sized(with_header(*one)) for one in messages)
    return b"MPUB_EXT %b\n" % _target(topic, partition) + sized(batch)


def _target(topic: str, partition: str) -> bytes:
    return f"{topic} {partition}".strip().encode()


class YouzanClient(Wire):
    """Sends ``extend_support`` as youzan's clients do; publishes to partition 0."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address)
        self.granted = self.identify(extend_support=True)

    def publish_ext(self, topic: str, headers: Mapping[str, str], body: bytes) -> None:
        answer = self.ask(pub_ext(topic, json.dumps(headers).encode(), body, "0"))
        assert answer == b"OK", answer

    def extended(self) -> Extended:
        """Return the next message."""
        record = self.message()
        version = record.body[0]
        if version == NO_EXT:
            return Extended(record.id, record.attempts, version, b"", record.body[1:])
        assert version == JSON_HEADER
        (length,) = struct.unpack_from(">H", record.body, 1)
        return Extended(
            record.id, record.attempts, version, record.body[3 : 3 + length], record.body[3 + length :]
        )
