"""One connection to one nsqd: handshake, heartbeats, commands out in batches, frames in."""

import asyncio
import json
import logging
from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol, Self, cast

from nsqcore.client.errors import ConnectionLostError, HandshakeError
from nsqcore.client.options import ClientOptions
from nsqcore.wire import commands
from nsqcore.wire.errors import ProtocolError
from nsqcore.wire.frames import (
    FRAME_ERROR,
    FRAME_MESSAGE,
    FRAME_RESPONSE,
    HEARTBEAT,
    FrameError,
    FrameParser,
    decode_error,
)
from nsqcore.wire.message import Message

log = logging.getLogger("nsqcore.client")

# What a server that does not negotiate allows, by the protocol's documentation.
DEFAULT_MAX_RDY_COUNT: Final = 2500

# How long a connection that is closed may take to hand over its last commands.
CLOSE_SECONDS: Final = 2.0


class Listener(Protocol):
    """Who is told what a connection brings; called from the event loop, must not block."""

    def messages_received(self, connection: "Connection", messages: list[Message]) -> None:
        """All messages of one read, in order."""

    def connection_lost(self, connection: "Connection", error: Exception | None) -> None:
        """The connection ended; None when we closed it ourselves."""


class ProducerListener:
    """For connections that only publish."""

    def messages_received(self, connection: "Connection", messages: list[Message]) -> None:
        raise AssertionError(f"{connection.address} sent {len(messages)} messages without a subscription")

    def connection_lost(self, connection: "Connection", error: Exception | None) -> None:
        if error is not None:
            log.warning("(%s) %s", connection.address, error)


@dataclass(frozen=True, slots=True)
class Negotiated:
    """What nsqd granted in its answer to IDENTIFY."""

    max_rdy_count: int = DEFAULT_MAX_RDY_COUNT
    msg_timeout_ms: int = 60_000
    version: str = ""
    auth_required: bool = False

    @classmethod
    def from_answer(cls, answer: bytes) -> Self:
        """Read the answer; a plain ``OK`` comes from a server that does not negotiate."""
        if not answer.startswith(b"{"):
            return cls()
        try:
            granted = json.loads(answer)
            return cls(
                max_rdy_count=int(granted.get("max_rdy_count") or DEFAULT_MAX_RDY_COUNT),
                msg_timeout_ms=int(granted.get("msg_timeout") or 60_000),
                version=str(granted.get("version", "")),
                auth_required=bool(granted.get("auth_required", False)),
            )
        except (ValueError, TypeError) as error:
            raise HandshakeError(f"the answer to IDENTIFY is not understood: {error}") from error


class Connection(asyncio.Protocol):
    """An identified connection; make it with :func:`connect`.

    Commands are collected and written once per turn of the event loop: a thousand FINs of one turn cost
    one system call.
    """

    def __init__(self, address: str, options: ClientOptions, listener: Listener) -> None:
        self.address = address
        self.options = options
        self.negotiated = Negotiated()
        self.in_flight = 0  # messages received here and not answered yet
        self.idle = asyncio.Event()  # nothing is in flight
        self.idle.set()
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = FrameParser()
        self._outbox: list[bytes] = []
        self._answers: deque[asyncio.Future[bytes]] = deque()  # in the order of the requests
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()
        self._closing = False  # we asked for the end
        self._failure: ConnectionError | None = None
        self._established = False  # the listener is told of the end of what it knew
        self._heard_at = self._loop.time()
        self._watchdog: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{self.in_flight} in flight, {len(self._answers)} waiting"
        return f"<Connection {self.address} {state}>"

    @property
    def is_closed(self) -> bool:
        return self._closing or self._failure is not None or self._closed.is_set()

    # --- commands

    def send(self, command: bytes) -> None:
        """Queue a command that has no answer; on a closed connection it goes nowhere."""
        if self.is_closed:
            return
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(command)

    def request(self, command: bytes) -> asyncio.Future[bytes]:
        """Queue a command and return its answer to come; ``ProtocolError`` when nsqd refuses it."""
        answer: asyncio.Future[bytes] = self._loop.create_future()
        if self.is_closed:
            answer.set_exception(self._failure or ConnectionLostError(f"{self.address} is closed"))
            answer.exception()  # as in connection_lost
        else:
            self._answers.append(answer)
            self.send(command)
        return answer

    def message_answered(self) -> None:
        """Count one message less in flight."""
        self.in_flight -= 1
        if self.in_flight == 0:
            self.idle.set()

    async def writable(self) -> None:
        """Wait while the peer reads slower than we write, so that memory stays bounded."""
        await self._writable.wait()

    async def close(self) -> None:
        """Send what is queued and end the connection; safe to call again."""
        if not self.is_closed and self._transport is not None:
            self._flush()
            self._closing = True
            self._transport.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._closed.wait()
        except TimeoutError:  # the peer does not read what is still queued
            self.abort(ConnectionLostError(f"{self.address} did not take the last commands"))
            await self._closed.wait()

    def abort(self, error: ConnectionError) -> None:
        """End the connection at once because of *error*."""
        if self._failure is None and not self._closing:
            self._failure = error
        if self._transport is not None:
            self._transport.abort()

    # --- handshake

    async def handshake(self) -> None:
        """Greet and negotiate; must come first."""
        self.send(commands.MAGIC_V2)
        answer = await self.request(commands.identify(self.options.identify_settings()))
        self.negotiated = Negotiated.from_answer(answer)
        self._established = True

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one without inheriting from it
        # 2500 messages of 200 bytes are finished by 60 KB of FINs; the default of 64 KiB would stall that.
        self._transport.set_write_buffer_limits(high=1024 * 1024)
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        messages: list[Message] = []
        try:
            for frame_type, payload in self._parser.feed(data):
                if frame_type == FRAME_MESSAGE:
                    messages.append(Message.decode(payload))
                elif frame_type == FRAME_RESPONSE:
                    self._response_received(payload)
                elif frame_type == FRAME_ERROR:
                    self._error_received(decode_error(payload))
                else:
                    raise FrameError(f"unknown frame type {frame_type}")
        except ValueError as error:
            self.abort(HandshakeError(f"{self.address} does not speak the NSQ protocol: {error}"))
        if messages:
            self.in_flight += len(messages)
            self.idle.clear()
            self._listener.messages_received(self, messages)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._failure is None and not self._closing:
            reason = f": {exc}" if exc else " by the server"
            self._failure = ConnectionLostError(f"connection to {self.address} was closed{reason}")
        self._outbox.clear()
        error = self._failure or ConnectionLostError(f"{self.address} is closed")
        for answer in self._answers:
            if not answer.done():
                answer.set_exception(
                    type(error)(str(error))
                )  # one each: a traceback grows where it is raised
                answer.exception()  # whoever gave up waiting will not look at it, and that is no mistake
        self._answers.clear()
        self._writable.set()
        self.idle.set()
        self._closed.set()
        if self._established:
            self._listener.connection_lost(self, self._failure)

    # --- inside

    def _flush(self) -> None:
        if self._outbox and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._outbox))
        self._outbox.clear()

    def _response_received(self, payload: bytes) -> None:
        if payload == HEARTBEAT:
            self.send(commands.NOP)
        elif self._answers:
            answer = self._answers.popleft()
            if not answer.done():
                answer.set_result(payload)
        else:
            raise FrameError(f"response {payload[:40]!r} to nothing")

    def _error_received(self, error: ProtocolError) -> None:
        if not error.fatal:
            # A FIN that came after the time-out is the usual one; the message is somebody else's by now.
            log.warning("(%s) %s", self.address, error)
            return
        # nsqd closes after this. Commands without an answer can fail too; then the oldest request is told,
        # as nothing from it onwards was carried out.
        if self._answers:
            answer = self._answers.popleft()
            if not answer.done():
                answer.set_exception(error)
                answer.exception()
        self.abort(ConnectionLostError(f"{self.address} closed the connection after {error}"))

    def _watch(self) -> None:
        """End the connection when nothing, not even a heartbeat, came for read_timeout."""
        silence = self._loop.time() - self._heard_at
        if silence >= self.options.read_timeout:
            self.abort(ConnectionLostError(f"{self.address} was silent for {silence:.1f} s"))
            return
        self._watchdog = self._loop.call_later(self.options.read_timeout - silence, self._watch)


async def connect(address: str, options: ClientOptions, listener: Listener) -> Connection:
    """Open a connection to ``host:port`` and negotiate; OSError or ``ProtocolError`` when that fails."""
    host, port = split_address(address)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(options.dial_timeout):
            _, connection = await loop.create_connection(
                lambda: Connection(address, options, listener), host, port
            )
    except TimeoutError as error:
        raise TimeoutError(f"{address} did not accept a connection in {options.dial_timeout:g} s") from error
    try:
        async with asyncio.timeout(options.read_timeout):
            await connection.handshake()
    except BaseException:
        connection.abort(ConnectionLostError(f"the handshake with {address} failed"))
        await connection.close()
        raise
    return connection


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` or ``[ipv6]:port`` as a pair; ValueError when it is neither."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"address {address!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)
