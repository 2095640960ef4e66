"""The fast way in for ``POST /pub``, in front of aiohttp.

A publisher that keeps its connection sends the same plain request over and over: one topic, a body whose
length it knows. Such requests are recognised by one regular expression and answered here, for a third of
what aiohttp's machinery costs. Anything else - another path or parameter, a chunked body, an error to be
told - hands the connection with all it has sent over to aiohttp, for good; it then sees every byte.
"""

import asyncio
import re
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Final, TypeAlias, cast

from nsqcore.service.httpapi import json_text
from nsqd.engine.broker import Broker
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.turn import Turn

_REQUEST: Final = re.compile(rb"POST /pub\?topic=([.a-zA-Z0-9_-]{1,64}) HTTP/1\.1\r\n")
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]{1,12}) *\r\n", re.IGNORECASE)
# Headers with which a request is no longer plain.
_UNUSUAL: Final = re.compile(
    rb"\r\n(?:transfer-encoding|expect|connection|upgrade|content-length)\s*:", re.IGNORECASE
)
_KEEP_ALIVE: Final = re.compile(rb"\r\nconnection: *keep-alive *\r\n", re.IGNORECASE)
_MAX_HEAD: Final = 8192
# A connection that is silent this long is closed, in the middle of a body or between requests.
IDLE_S: Final = 120.0

Fallback: TypeAlias = Callable[[], asyncio.Protocol]


class FastPublish:
    """Makes the protocol of each HTTP connection, and closes those that never fell back."""

    def __init__(self, broker: Broker, turn: Turn) -> None:
        self.broker = broker
        self.turn = turn
        self.connections: set[FrontConnection] = set()
        self._date = b""
        self._date_of = 0

    def wrap(self, fallback: Fallback) -> Callable[[], "FrontConnection"]:
        """A protocol factory that asks here first and *fallback* for the rest."""
        return lambda: FrontConnection(self, fallback)

    def close(self) -> None:
        for connection in list(self.connections):
            connection.close()

    def reply(self, status: bytes, content_type: bytes, body: bytes) -> bytes:
        now = int(time.time())
        if now != self._date_of:
            self._date_of = now
            self._date = formatdate(now, usegmt=True).encode()
        return (
            b"HTTP/1.1 %b\r\nX-Nsq-Content-Type: nsq; version=1.0\r\nContent-Type: %b\r\n"
            b"Content-Length: %d\r\nDate: %b\r\n\r\n%b" % (status, content_type, len(body), self._date, body)
        )


class FrontConnection(asyncio.Protocol):
    """One HTTP connection, for as long as it sends nothing but plain publishes."""

    __slots__ = (
        "_ended",
        "_fallback",
        "_fast",
        "_heard",
        "_idle",
        "_loop",
        "_paused",
        "_rest",
        "_transport",
        "_waiting",
    )

    def __init__(self, fast: FastPublish, fallback: Fallback) -> None:
        self._fast = fast
        self._fallback = fallback
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._heard = self._loop.time()
        self._rest = b""
        # A publish that is not stored yet; what comes after it waits, for replies go out in order.
        self._waiting = False
        self._paused = False
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._fast.connections.add(self)
        self._idle = self._loop.call_later(IDLE_S, self._close_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._leave()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        self._rest = self._rest + data if self._rest else data
        if not self._waiting:
            self._next()
        elif (
            not self._paused
            and len(self._rest) > self._fast.broker.limits.max_msg_size + _MAX_HEAD
            and self._transport
        ):
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        # Kept open until the publish that waits is answered.
        self._ended = True
        return self._waiting

    def close(self) -> None:
        """Close the connection, a publish that waits being answered first."""
        self._ended = True
        if self._transport is not None and not self._waiting:
            self._transport.close()

    def _next(self) -> None:
        """Serve the request at the beginning of what was received, or leave it to the fallback."""
        data = self._rest
        request = _REQUEST.match(data)
        head_end = data.find(b"\r\n\r\n", 0, _MAX_HEAD)
        if request is None or head_end < 0:
            self._fall_back()
            return
        head = data[request.end() - 2 : head_end + 2]
        length = _LENGTH.search(head)
        unusual = _UNUSUAL.findall(head)
        limits = self._fast.broker.limits
        if (
            length is None
            or len(unusual) > 1 + (_KEEP_ALIVE.search(head) is not None)
            or not 0 < int(length[1]) <= limits.max_msg_size
            or self._fast.broker.draining
        ):
            self._fall_back()
            return
        start = head_end + 4
        end = start + int(length[1])
        if end > len(data):
            # The rest of the body is on its way.
            return
        self._rest = data[end:]
        self._publish(request[1].decode(), data[start:end])

    def _publish(self, topic_name: str, body: bytes) -> None:
        now_ns = clock_ns()
        topic = self._fast.broker.topic(topic_name, now_ns)
        topic.publish(body, now_ns)
        self._waiting = True
        self._fast.turn.when_stored(topic, self._stored)

    def _stored(self, reason: str) -> None:
        self._waiting = False
        transport = self._transport
        if transport is None:
            return
        if reason:
            message = json_text({"message": "EXITING"}).encode()
            reply = self._fast.reply(b"503 Service Unavailable", b"application/json; charset=utf-8", message)
        else:
            reply = self._fast.reply(b"200 OK", b"text/plain; charset=utf-8", b"OK")
        transport.write(reply)
        if self._ended:
            transport.close()
            return
        if self._paused:
            self._paused = False
            transport.resume_reading()
        if self._rest:
            self._next()

    def _fall_back(self) -> None:
        """From here on the connection is aiohttp's."""
        transport = self._transport
        if transport is None:
            return
        self._leave()
        self._transport = None
        protocol = self._fallback()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        rest, self._rest = self._rest, b""
        protocol.data_received(rest)

    def _leave(self) -> None:
        self._fast.connections.discard(self)
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _close_if_idle(self) -> None:
        silent = self._loop.time() - self._heard
        if silent >= IDLE_S and not self._waiting:
            self.close()
        else:
            self._idle = self._loop.call_later(max(1.0, IDLE_S - silent), self._close_if_idle)
