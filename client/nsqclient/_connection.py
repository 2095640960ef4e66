"""One connection to one nsqd: commands out in batches, frames in, with a timeout for every wait."""

import asyncio
import logging
from typing import Any, Final, cast

from nsqclient._config import Config
from nsqclient._errors import ConnectionLostError, stranger
from nsqclient._listener import Listener
from nsqclient._message import Message, Outcome
from nsqclient._requests import Answer, Confirmation, PendingCommand, Publish, RequestQueue
from nsqclient._retry import Retry
from nsqclient._timeouts import Watchdog, unsent_bytes
from nsqclient.net.layers import Compressed
from nsqclient.wire import commands
from nsqclient.wire.compression import Codec
from nsqclient.wire.errors import ProtocolError
from nsqclient.wire.frames import (
    FRAME_ERROR,
    FRAME_RESPONSE,
    HEARTBEAT,
    OK,
    FrameError,
    FrameParser,
    decode_error,
)
from nsqclient.wire.headers import parse_extended
from nsqclient.wire.negotiated import Negotiated

log = logging.getLogger("nsqclient")

# How long a closing connection may take to send its last commands.
CLOSE_SECONDS: Final = 2.0

# The answers of the handshake are short; a larger size comes from a peer that is no nsqd.
_HANDSHAKE_BYTES: Final = 1 << 20

# How many late answers are remembered.
_MAX_LATE: Final = 1000

# The largest read of asyncio's own loop. With its default of 256 KiB every read allocates by mmap.
_READ_BYTES: Final = 65_536


class Connection(asyncio.Protocol):
    """A connection that :func:`nsqclient._handshake.connect` opens and negotiates.

    The connection collects commands and writes them once per turn of the event loop. A thousand FINs in one
    turn cost one system call.
    """

    def __init__(self, address: str, config: Config, listener: Listener) -> None:
        self.address = address
        self.topic = self.channel = ""  # what it is subscribed to
        self.config = config
        self.negotiated = Negotiated()
        self.in_flight = 0  # messages received here and not answered yet
        self.idle = asyncio.Event()  # nothing is in flight
        self.idle.set()
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = FrameParser(_HANDSHAKE_BYTES)
        self._outbox: list[bytes] = []
        self.under_way: RequestQueue[PendingCommand] = RequestQueue()
        self._open: Publish | None = None  # the last publish, while messages can join it
        self._is_bulky = False  # whether the outbox holds long messages
        self.was_refused = False  # the connection ends because of a message, not because of the node
        self._closed = asyncio.Event()
        self._closing = False  # close() was called
        self._failure: ConnectionError | None = None
        self._established = False  # from then on the listener is notified of the end
        # Answers after the message timeout: the id of each message, and the seconds that it took. Nsqd takes
        # such an answer if the message was touched.
        self._late: dict[bytes, float] = {}
        self._late_before = float("-inf")  # messages received before this are late
        self._last_read = self.answered_at = self._loop.time()
        self._watchdog = Watchdog(
            self,
            self.abort,
            read_timeout=config.read_timeout,
            write_timeout=config.write_timeout,
            hears_heartbeats=config.heartbeat_interval != -1,
        )

    def __repr__(self) -> str:
        state = (
            "closed" if self.is_closed else f"{self.in_flight} in flight, {self.under_way.messages} waiting"
        )
        return f"<Connection {self.address} {state}>"

    @property
    def is_closed(self) -> bool:
        return self._closing or self._failure is not None

    @property
    def failure(self) -> ConnectionError | None:
        """Why it ended, unless we closed it."""
        return self._failure

    # --- commands

    def send(self, command: bytes) -> None:
        """Queue a command that has no answer; on a closed connection it is dropped."""
        if self._closing or self._failure is not None:
            return
        if not self._outbox:
            self._loop.call_soon(self._flush)
            self._late_before = self._loop.time() - self.negotiated.msg_timeout / 1000
        if self._open is not None:
            self._seal()
        self._outbox.append(command)

    def request(self, command: bytes) -> Confirmation:
        """Queue a command and return a future of its answer; ``ProtocolError`` when nsqd refuses it."""
        answer: Confirmation = self._loop.create_future()
        request = PendingCommand(command, [answer])
        if self.is_closed:
            request.fail_quietly(self._failure or ConnectionLostError(f"{self.address} is closed"))
        else:
            self.send(command)
            self._await(request)
        return answer

    def submit(self, topic: str, body: bytes) -> Confirmation:
        """Like :meth:`publish`, and return a future of the answer."""
        answer: Confirmation = self._loop.create_future()
        self.publish(topic, body, answer)
        return answer

    def publish(self, topic: str, body: bytes, answer: Answer) -> None:
        """Queue a message; messages for the same topic in the same turn are sent together with it.

        Unlike a request, a refused or lost message returns to the listener.
        """
        joined = self._open
        if joined is not None and joined.has_room(topic):
            joined.join(body, answer)
            under_way = self.under_way
            under_way.messages += 1
            under_way.bytes += len(body)
            return
        if not self.under_way:
            # A publisher of single messages waits for this one, so it is sent immediately.
            alone = Publish(commands.pub(topic, body), [answer])
            self._await(alone)
            self._write([*self._outbox, alone.command])
            self._outbox.clear()
            return
        publish = Publish.of(topic, body, answer)
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._seal()
        self._outbox.append(b"")  # so that the next command schedules no second flush
        self._await(publish)
        self._open = publish

    def entrust(self, publish: Publish) -> None:
        """Queue a complete publish; as with publish(), it may return to the listener."""
        if self._closed.is_set():
            self._listener.publishes_lost(self, [publish])
            return
        if not self._closing and self._failure is None:
            if not self._outbox:
                self._loop.call_soon(self._flush)
            self._seal()
            self._outbox += publish.parts()
        self._await(publish)

    def expect(self) -> Confirmation:
        """A future of an answer that no command asks for: nsqd sends OK after each upgrade."""
        answer: Confirmation = self._loop.create_future()
        self._await(PendingCommand(b"", [answer]))
        return answer

    @property
    def silent_for(self) -> float:
        """The seconds since something was last received."""
        return self._loop.time() - self._last_read

    @property
    def unanswered_for(self) -> float:
        """The age in seconds of the oldest pending answer; 0 when none is pending."""
        return self._loop.time() - self.answered_at if self.under_way else 0

    @property
    def unsent(self) -> int:
        """The bytes that were written and have not reached the other machine."""
        return unsent_bytes(self._transport) if self._transport is not None else 0

    def give_up_after(self, seconds: float) -> None:
        """End the connection when a command has no answer for so many seconds."""
        self._watchdog.answer_timeout = seconds

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

    async def ended(self) -> None:
        """Wait for the end of a connection that is closed."""
        await self._closed.wait()

    def abort(self, error: ConnectionError) -> None:
        """End the connection immediately because of *error*."""
        if self._failure is None and not self._closing:
            self._failure = error
        if self._transport is not None:
            self._transport.abort()

    # --- answers to messages

    def answer(self, command: bytes, outcome: Outcome, received_at: float) -> None:
        self.in_flight -= 1
        if self.in_flight == 0:
            self.idle.set()
        if self._closing or self._failure is not None:
            return  # it does not reach nsqd, which delivers the message again
        if self._outbox:
            self._outbox.append(
                command
            )  # a flush is scheduled, and a consumer has no publish that others join
        else:
            self.send(command)
        if received_at < self._late_before:
            self._note_late(command, received_at)
        self._listener.message_answered(outcome)

    def touch(self, message_id: bytes) -> None:
        self.send(commands.touch(message_id))

    @property
    def retry(self) -> Retry:
        return self._listener.retry

    def handling_failed(self, message: Message[Any], error: BaseException | None) -> None:
        self._listener.handling_failed(message, error)

    # --- for the handshake

    def abandon(self, error: ConnectionError) -> None:
        """End a connection that did not get through the handshake."""
        self.abort(error)
        # A failed TLS handshake has removed the transport, so its end would not be reported.
        self.connection_lost(None)

    @property
    def transport(self) -> asyncio.Transport:
        if self._transport is None or self.is_closed:
            raise self._failure or ConnectionLostError(f"{self.address} is closed")
        return self._transport

    def upgrade(self, transport: asyncio.Transport) -> None:
        """Use another transport from now on, such as that of TLS."""
        self._transport = transport

    def compress(self, codec: Codec) -> None:
        """Compress from now on; bytes received after the last answer are compressed already."""
        layer = Compressed(self.transport, self, codec)
        self._transport = layer
        layer.data_received(self._parser.rest())

    def established(self, negotiated: Negotiated) -> None:
        """The handshake is done: messages may arrive, and the listener is notified of the end."""
        self.negotiated = negotiated
        self._established = True
        self._watchdog.watch()  # the handshake has its own timeout
        early = self._parser.rest()
        self._parser = FrameParser(self.config.max_frame_bytes, Message, self)
        if early:
            self.data_received(early)

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one without inheriting from it
        if hasattr(transport, "max_size"):
            transport.max_size = _READ_BYTES
        # 2500 messages of 200 bytes are finished by 60 KB of FINs, which the default of 64 KiB would stall.
        self._transport.set_write_buffer_limits(high=1024 * 1024)

    def data_received(self, data: bytes) -> None:
        if self._failure is not None:
            return
        self._last_read = now = self._loop.time()
        messages: list[Message[Any]] = []
        others: list[tuple[int, bytes]] = []
        try:
            if self._established:
                oks = self._parser.feed_run(data, now, messages, others)
                if self.negotiated.extend_support:
                    _take_headers(messages)
                if oks:
                    self._oks_received(oks)
                self._sort(messages, others)
            else:
                self._shake_hands(data)
        except FrameError as error:
            self._sort(messages, others)
            self.abort(stranger(self.address, data, error))

    def eof_received(self) -> None:
        """The peer has closed its side, so close the transport. Messages in flight cannot be answered."""

    def pause_writing(self) -> None:
        self._watchdog.expect_progress()

    def resume_writing(self) -> None:
        self._watchdog.progressed()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._closed.is_set():
            return
        self._watchdog.stop()
        if self._failure is None and not self._closing:
            reason = f": {exc}" if exc else " by the server"
            self._failure = ConnectionLostError(f"connection to {self.address} was closed{reason}")
        self._outbox.clear()
        error = self._failure or ConnectionLostError(f"{self.address} is closed")
        requests = self.under_way.clear()
        self._open = None
        for request in requests:
            if not isinstance(request, Publish):
                request.fail_quietly(error)
        self.idle.set()
        self._closed.set()
        if self._established:
            self._listener.connection_lost(self, self._failure)
            if publishes := [request for request in requests if isinstance(request, Publish)]:
                self._listener.publishes_lost(self, publishes)

    # --- inside

    def _await(self, request: PendingCommand) -> None:
        if not self.under_way:
            self.answered_at = self._loop.time()
        self.under_way.append(request)

    def _seal(self) -> None:
        if self._open is not None:
            self._is_bulky |= self._open.is_bulky
            self._outbox += self._open.parts()
            self._open = None

    def _shake_hands(self, data: bytes) -> None:
        # Bytes after an answer are not parsed before the next answer is expected: they may be compressed.
        while self.under_way:
            frames, data = self._parser.feed(data, single=True), b""
            if not frames:
                return
            self._sort([], frames)
        self._parser.add(data)

    def _flush(self) -> None:
        self._seal()
        outbox, self._outbox = self._outbox, []
        if outbox:
            self._write(outbox)

    def _write(self, parts: list[bytes]) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._is_bulky:
            self._is_bulky = False
            self._transport.writelines(parts)
        else:
            self._transport.write(b"".join(parts) if len(parts) > 1 else parts[0])

    def _sort(self, messages: list[Message[Any]], others: list[tuple[int, bytes]]) -> None:
        # Messages first: the answer to CLS says that none will follow.
        if messages:
            self.in_flight += len(messages)
            self.idle.clear()
            self._listener.messages_received(self, messages)
        while others:
            frame_type, payload = others.pop(0)
            if frame_type == FRAME_RESPONSE:
                self._response_received(payload)
            elif frame_type == FRAME_ERROR:
                self._error_received(decode_error(payload))
            else:
                raise FrameError(f"unknown frame type {frame_type}")

    def _oks_received(self, count: int) -> None:
        if count > len(self.under_way):
            raise FrameError(f"{count} times OK to {len(self.under_way)} requests")
        for _ in range(count):
            self.under_way.popleft().succeed(OK)
        self.answered_at = self._last_read
        self._listener.requests_answered(self)

    def _response_received(self, payload: bytes) -> None:
        if payload == HEARTBEAT:
            self.send(commands.NOP)
            return
        if not self.under_way:
            raise FrameError(f"response {payload[:40]!r} to nothing")
        if payload != OK and isinstance(self.under_way.first, Publish):
            raise FrameError(f"response {payload[:40]!r} to a publish")
        self.under_way.popleft().succeed(payload)
        self.answered_at = self._last_read
        self._listener.requests_answered(self)

    def _note_late(self, command: bytes, received_at: float) -> None:
        if len(self._late) >= _MAX_LATE:
            del self._late[next(iter(self._late))]
        self._late[command.split()[1]] = self._loop.time() - received_at

    def _answer_refused(self, error: ProtocolError) -> None:
        """Nsqd does not take an answer, usually because the message has timed out and is delivered again."""
        words = error.text.encode(errors="replace").split()
        seconds = self._late.pop(words[1], None) if len(words) > 1 else None
        if seconds is None:
            log.warning("(%s) %s", self.address, error)
        else:
            log.warning(
                "%s/%s (%s): message %s took %.1f s, longer than msg_timeout (%g s), so nsqd delivers it"
                " again: use auto_touch=True or a longer msg_timeout",
                self.topic,
                self.channel,
                self.address,
                words[1].decode(errors="replace"),
                seconds,
                self.negotiated.msg_timeout / 1000,
            )
        self._listener.answer_refused(error)

    def _error_received(self, error: ProtocolError) -> None:
        if not error.fatal:
            self._answer_refused(error)
            return
        # nsqd closes after this. When a command without an answer has failed, the oldest request gets the
        # error, because nsqd executed neither it nor the later commands.
        if self.under_way:
            request = self.under_way.popleft()
            if isinstance(request, Publish):
                self._listener.publish_refused(self, request, error)
            else:
                request.fail_quietly(error)
        self.abort(ConnectionLostError(f"{self.address} closed the connection after {error}"))


def _take_headers(messages: list[Message[Any]]) -> None:
    """Separate the headers of extended messages from their bodies.

    Raises FrameError for malformed ones; that message and those behind it are dropped.
    """
    for at, message in enumerate(messages):
        try:
            headers, message.body = parse_extended(message.body)
        except FrameError:
            del messages[at:]
            raise
        if headers:
            message._headers = headers
