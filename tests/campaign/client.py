"""Clients of a simulated node, with a transport in memory."""

import asyncio
import struct
from collections.abc import Callable

from nsqclient.wire.frames import FRAME_MESSAGE, FrameParser
from nsqd.server.tcp import Clients
from tests.campaign.headed import with_headers
from tests.support.memory_transport import MemoryTransport

HEARTBEAT = b"_heartbeat_"


class Client:
    """One connection; frames go to the callbacks, except heartbeats, which it answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clients: Clients) -> None:
        self.on_reply: Callable[[int, bytes], None] = lambda _kind, _data: None
        self.on_message: Callable[[bytes, int, bytes], None] = lambda _id, _attempts, _body: None
        self._loop = loop
        self._parser = FrameParser()
        self._transport = MemoryTransport(self._hear, loop)
        self._connection = clients.accept()
        self._transport.connect(self._connection)
        self.say(b"  V2")

    @property
    def closed(self) -> bool:
        return self._transport.is_closing()

    def say(self, data: bytes) -> None:
        if not self.closed:
            self._connection.data_received(data)

    def close(self) -> None:
        self._transport.close()

    def _hear(self, data: bytes) -> None:
        for kind, content in self._parser.feed(data):
            if kind == FRAME_MESSAGE:
                attempts = struct.unpack_from(">H", content, 8)[0]
                self.on_message(content[10:26], attempts, content[26:])
            elif content != HEARTBEAT:
                self.on_reply(kind, content)
            else:
                self._loop.call_soon(self.say, b"NOP\n")


def sized(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def pub(topic: str, body: bytes) -> bytes:
    return b"PUB %b\n" % topic.encode() + sized(body)


def mpub(topic: str, bodies: list[bytes]) -> bytes:
    packed = struct.pack(">I", len(bodies)) + b"".join(map(sized, bodies))
    return b"MPUB %b\n" % topic.encode() + sized(packed)


def pub_ext(topic: str, body: bytes) -> bytes:
    return b"PUB_EXT %b\n" % topic.encode() + sized(with_headers(body))


def mpub_ext(topic: str, bodies: list[bytes]) -> bytes:
    packed = struct.pack(">I", len(bodies)) + b"".join(sized(with_headers(body)) for body in bodies)
    return b"MPUB_EXT %b\n" % topic.encode() + sized(packed)


def dpub(topic: str, body: bytes, delay_ms: int) -> bytes:
    return b"DPUB %b %d\n" % (topic.encode(), delay_ms) + sized(body)


def ask_for_headers() -> bytes:
    return b"IDENTIFY\n" + sized(b'{"extend_support":true}')


def sub(topic: str, channel: str) -> bytes:
    return b"SUB %b %b\n" % (topic.encode(), channel.encode())
