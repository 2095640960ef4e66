"""The fast path for ``POST /pub`` and short ``POST /mpub``, in front of aiohttp.

A publisher that keeps its connection sends the same plain request over and over: one topic, a body of known
length. Such requests are recognised by their heads and answered here, at a third of aiohttp's cost; requests
that arrive together are stored together. At anything else - another path or parameter, a chunked body, an
error to be told - the connection is permanently handed over to aiohttp, with all bytes that are not answered.
"""

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from typing import Final, TypeAlias, cast

from nsqcore.http.api import json_text
from nsqcore.pieces import add_piece
from nsqd.engine.broker import Broker
from nsqd.engine.topic import Refused, Topic
from nsqd.log.encoder import Batch
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.http.plain_publish import MAX_HEAD, PlainPublish, may_become_plain, understand
from nsqd.server.write_batch import WriteBatch

# A connection that is silent this long is closed, in the middle of a body or between requests.
IDLE_S: Final = 120.0
# Bytes that wait in a socket are read within this time, so a client counts as silent only after it.
READ_GRACE_S: Final = 0.05
# How many requests of one connection are stored together, before others have their turn.
MAX_BATCH: Final = 256
# A longer body of lines is published in slices, which only the fallback does.
MAX_LINES: Final = 64 << 10
# Bytes that are read ahead while answers are pending; then reading pauses.
READ_AHEAD: Final = 64 << 10
# How many understood heads are remembered: a publisher repeats its head for every body of the same length.
MAX_CACHED_HEADS: Final = 1024

Fallback: TypeAlias = Callable[[], asyncio.Protocol]


class FastPublish:
    """Makes the protocol of each HTTP connection, and closes those that did not fall back."""

    def __init__(self, broker: Broker, write_batch: WriteBatch) -> None:
        self.broker = broker
        self.write_batch = write_batch
        self.connections: set[FrontConnection] = set()
        self._heads: dict[bytes, PlainPublish] = {}
        self._ok = b""
        self._ok_of = 0

    def wrap(self, fallback: Fallback) -> Callable[[], "FrontConnection"]:
        """A protocol factory for this front, which uses *fallback* for all other requests."""
        return lambda: FrontConnection(self, fallback)

    def close(self) -> None:
        for connection in list(self.connections):
            connection.close()

    def close_idle(self) -> None:
        """Close the connections without a request."""
        for connection in list(self.connections):
            if connection.is_idle:
                connection.close()

    def understand(self, head: bytes) -> PlainPublish | None:
        request = self._heads.get(head)
        if request is None:
            request = understand(head)
            if request is not None:
                if len(self._heads) >= MAX_CACHED_HEADS:
                    self._heads.clear()
                self._heads[head] = request
        return request

    def ok(self) -> bytes:
        """The answer to a stored publish."""
        now = int(time.time())
        if now != self._ok_of:
            self._ok_of = now
            self._ok = _reply(b"200 OK", b"text/plain; charset=utf-8", b"OK", now)
        return self._ok


class FrontConnection(asyncio.Protocol):
    """One HTTP connection, for as long as it sends nothing but plain publishes."""

    __slots__ = (
        "_batch",
        "_ended",
        "_fallback",
        "_fast",
        "_have",
        "_heard",
        "_idle",
        "_loop",
        "_need",
        "_pieces",
        "_stuck",
        "_transport",
        "_unstored",
        "_waiting_for",
    )

    def __init__(self, fast: FastPublish, fallback: Fallback) -> None:
        self._fast = fast
        self._fallback = fallback
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._heard = self._loop.time()
        # Received bytes that are not served yet, in chunks that are joined once a request is complete.
        self._pieces: list[bytes] = []
        self._have = 0
        self._need = 0
        # The topic of each publish that is not answered yet, in order. Later requests wait for these.
        self._batch: list[Topic] = []
        self._waiting_for = 0
        self._unstored: set[Topic] = set()
        # Whether the client does not read its answers.
        self._stuck = False
        self._ended = False

    # --- asyncio's calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._fast.connections.add(self)
        self._idle = self._loop.call_later(IDLE_S, self._check_idle)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._leave()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        add_piece(self._pieces, data)
        self._have += len(data)
        if self._batch or self._stuck:
            if self._have > READ_AHEAD and self._transport is not None:
                self._transport.pause_reading()
        elif self._have >= self._need:
            self._serve()

    def eof_received(self) -> bool:
        # Keep the connection open until complete requests are answered.
        self._ended = True
        return bool(self._batch) or self._stuck

    def pause_writing(self) -> None:
        self._stuck = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._stuck = False
        self._heard = self._loop.time()
        if not self._batch:
            self._resume()

    @property
    def is_idle(self) -> bool:
        return not (self._batch or self._have)

    def close(self) -> None:
        """Close the connection; publishes that wait to be stored are answered first."""
        self._ended = True
        if self._transport is not None and not self._batch:
            self._transport.close()

    # --- requests ---

    def _serve(self) -> None:
        """Publish the complete requests, up to the first that is not plain, which goes to the fallback."""
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        fast, batch = self._fast, self._batch
        broker, most = fast.broker, fast.broker.limits.max_msg_size
        # In a body of at most this size no line is longer than a message may be.
        most_lines = min(most, MAX_LINES, broker.limits.max_body_size)
        now_ns = clock_ns()
        at, total = 0, len(data)
        self._need = 0
        while at < total and len(batch) < MAX_BATCH:
            body = data.find(b"\r\n\r\n", at, at + MAX_HEAD) + 4
            if body < 4:
                if total - at < MAX_HEAD and may_become_plain(data[at:]):
                    # The rest of the head is on its way.
                    self._need = total - at + 1
                    break
                request = None
            else:
                request = fast.understand(data[at:body])
            if (
                request is None
                or not 0 < request.length <= (most_lines if request.lines else most)
                or broker.leaving
                or broker.disk_low
            ):
                if not batch:
                    self._fall_back(data[at:])
                    return
                # The fallback gets it once the requests before it are answered.
                break
            end = body + request.length
            if end > total:
                self._need = end - at
                break
            topic = broker.topic(request.topic, now_ns)
            try:
                if request.lines:
                    bodies = list(filter(None, data[body:end].split(b"\n")))
                    if bodies:
                        topic.stage_batch(Batch(bodies), now_ns)
                else:
                    topic.stage(data[body:end], now_ns)
            except Refused:
                if not batch:
                    # The fallback is refused as well, and answers with the error.
                    self._fall_back(data[at:])
                    return
                break
            batch.append(topic)
            at = end
        self._pieces = [data[at:]] if at < total else []
        self._have = total - at
        if batch:
            topics = set(batch)
            self._waiting_for = len(topics)
            for topic in topics:
                fast.write_batch.when_stored(topic, partial(self._stored, topic))

    def _stored(self, topic: Topic, reason: str) -> None:
        self._waiting_for -= 1
        if reason:
            self._unstored.add(topic)
        if self._waiting_for:
            return
        batch, self._batch = self._batch, []
        unstored, self._unstored = self._unstored, set()
        if self._transport is None:
            return
        if unstored:
            self._transport.write(
                b"".join(_not_stored() if topic in unstored else self._fast.ok() for topic in batch)
            )
        else:
            self._transport.write(self._fast.ok() * len(batch))
        if not self._stuck:
            self._resume()

    def _resume(self) -> None:
        """Continue after all publishes are answered and the client reads its replies."""
        transport = self._transport
        if transport is None:
            return
        if self._have and self._have >= self._need:
            self._serve()
        if self._batch or self._transport is None:
            return
        if self._ended:
            transport.close()
        elif not transport.is_reading():
            transport.resume_reading()

    def _fall_back(self, rest: bytes) -> None:
        """Hand the connection over to aiohttp, with the bytes in *rest*."""
        transport = self._transport
        if transport is None:
            return
        self._leave()
        self._transport = None
        self._pieces = []
        protocol = self._fallback()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if not self._ended:
            if not transport.is_reading():
                transport.resume_reading()
            protocol.data_received(rest)
            return
        protocol.data_received(rest)
        if not protocol.eof_received():
            transport.close()

    # --- silence ---

    def _leave(self) -> None:
        self._fast.connections.discard(self)
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _check_idle(self) -> None:
        silent = self._loop.time() - self._heard
        if silent >= IDLE_S and not self._batch:
            # The loop runs timers before it reads sockets, so bytes from the client may still be unread.
            self._idle = self._loop.call_later(READ_GRACE_S, self._close_if_idle)
        else:
            self._idle = self._loop.call_later(max(1.0, IDLE_S - silent), self._check_idle)

    def _close_if_idle(self) -> None:
        if self._loop.time() - self._heard < IDLE_S or self._batch:
            self._check_idle()
        elif self._transport is not None:
            # close() would wait forever for a client that does not read.
            self._transport.abort()


def _not_stored() -> bytes:
    message = json_text({"message": "EXITING"}).encode()
    return _reply(b"503 Service Unavailable", b"application/json; charset=utf-8", message, int(time.time()))


def _reply(status: bytes, content_type: bytes, body: bytes, now: int) -> bytes:
    return (
        b"HTTP/1.1 %b\r\nX-Nsq-Content-Type: nsq; version=1.0\r\nContent-Type: %b\r\n"
        b"Content-Length: %d\r\nDate: %b\r\n\r\n%b"
        % (status, content_type, len(body), formatdate(now, usegmt=True).encode(), body)
    )
