"""An nsqd in memory, on a real port of this machine, so that programs are tested unchanged.

It speaks the protocol without TLS, compression and AUTH. Its clock moves only when a test moves it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Final, Self, TypeAlias, TypeVar

from nsqclient._tasks import end
from nsqclient._threads import LoopThread
from nsqclient.testing._lookupd import lookup_answer
from nsqclient.testing._queues import Broker, Channel, Stored
from nsqclient.wire.frames import (
    CLOSE_WAIT,
    FRAME_ERROR,
    FRAME_MESSAGE,
    FRAME_RESPONSE,
    OK,
    encode_frame,
)
from nsqclient.wire.headers import EXT_JSON_HEADERS, EXT_NONE, encode_headers
from nsqclient.wire.message import MessageRecord
from nsqclient.wire.names import is_valid_name
from nsqclient.wire.negotiated import Negotiated

R = TypeVar("R")
Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_PUBLISHES: Final = frozenset((b"PUB", b"MPUB", b"DPUB", b"PUB_EXT", b"MPUB_EXT"))
# Twice the rounds that accepting a connection, reading it and applying its commands take.
_TURNS: Final = 16
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class MemoryNsqd:
    """An nsqd in memory, used in a ``with`` block; any thread may call it, also from coroutines.

        with MemoryNsqd() as nsqd:
            producer = Producer(nsqd.address)
            consumer = Consumer("orders", "billing", handle, lookupd_addresses=nsqd.lookupd_address)

    At *lookupd_address* an nsqlookupd names this nsqd for every topic.
    With *headers* it takes and sends headers of messages. *msg_timeout* is in seconds of its own clock.
    """

    def __init__(self, *, headers: bool = False, msg_timeout: float = 60, port: int = 0) -> None:
        self.address = ""
        self.lookupd_address = ""
        self.connections_made = 0
        self._port = port
        self._broker = Broker(headers=headers, msg_timeout=msg_timeout)
        self._sessions: set[_Session] = set()
        self._thawed = asyncio.Event()  # it reads and answers
        self._thawed.set()
        self._thread: LoopThread | None = None
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[object] | None] = set()

    def __enter__(self) -> Self:
        self._thread = LoopThread("nsqd in memory")
        self._thread.call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.call(self._close())
            self._thread.stop()

    # --- results for a test

    def published(self, topic: str) -> list[bytes]:
        """The bodies published to a topic, in order."""
        self._settle()
        return list(self._broker.topics[topic].bodies)

    def published_headers(self, topic: str) -> list[dict[str, str]]:
        """The headers of the messages published to a topic, in order; an empty dict for a message without."""
        self._settle()
        return list(self._broker.topics[topic].headers)

    def finished(self, topic: str, channel: str) -> list[bytes]:
        """The bodies finished on a channel, in the order in which they were finished."""
        self._settle()
        return list(self._channel(topic, channel).finished)

    def depth(self, topic: str, channel: str) -> int:
        """The number of messages that wait for a consumer."""
        self._settle()
        return len(self._channel(topic, channel).waiting)

    def in_flight(self, topic: str, channel: str) -> int:
        """The number of messages that consumers have not answered yet."""
        self._settle()
        return len(self._channel(topic, channel).in_flight)

    def deferred(self, topic: str, channel: str) -> list[float]:
        """The seconds until each deferred message is due, in ascending order."""
        self._settle()
        return sorted(due - self._broker.now for due, _ in self._channel(topic, channel).deferred)

    def requeued(self, topic: str, channel: str) -> int:
        self._settle()
        return self._channel(topic, channel).requeued

    def timed_out(self, topic: str, channel: str) -> int:
        self._settle()
        return self._channel(topic, channel).timed_out

    # --- actions of a test

    def publish(self, topic: str, body: bytes, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        """Publish as another program would."""
        self._call(lambda: self._broker.publish(topic, body, None, dict(headers)))

    def advance(self, seconds: float) -> None:
        """Move the clock; deliver messages that become due, and again those that time out."""
        self._call(lambda: self._broker.advance(seconds))

    def refuse(self, *codes: str) -> None:
        """Answer the next publishes with these errors, such as ``E_PUB_FAILED``, one each.

        A producer that knows no other nsqd raises them.
        """
        self._broker.refusals.extend(codes)

    def freeze(self) -> None:
        """Answer and read nothing more, like a stopped process."""
        self._call(self._thawed.clear)

    def thaw(self) -> None:
        self._call(self._thawed.set)

    def drop_connections(self) -> None:
        """Cut all connections; messages in flight wait again."""
        self._call(self._drop_connections)

    # --- inside

    def _settle(self) -> None:
        """Read what clients have sent so far, because closing a client does not wait for that."""
        thread = self._thread
        if thread is not None and not thread.is_current and not thread.loop.is_closed():
            thread.call(_some_turns())

    def _call(self, work: Callable[[], R]) -> R:
        if self._thread is None:
            raise RuntimeError("it is used in a with block")

        async def on_the_loop() -> R:
            return work()

        return self._thread.call(on_the_loop())

    def _channel(self, topic: str, channel: str) -> Channel:
        # A channel exists after its first subscription; a lookup must not create it.
        return self._broker.topics[topic].channels.get(channel) or Channel()

    async def _start(self) -> None:
        self.address = await self._listen(self._serve_client, self._port)
        self.lookupd_address = await self._listen(self._serve_lookup, 0)

    async def _listen(self, answer: Serve, port: int) -> str:
        server = await asyncio.start_server(partial(self._serve, answer), "127.0.0.1", port, limit=1 << 20)
        self._servers.append(server)
        host, port = server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def _close(self) -> None:
        # asyncio forgets a connection that was accepted just when its server is closed, and a session
        # that is cancelled before it has begun cannot close it. So the servers first stop accepting.
        for server in self._servers:
            with suppress(NotImplementedError):  # the loop of Windows has no readers
                for listener in server.sockets:
                    asyncio.get_running_loop().remove_reader(listener)
        await _some_turns()
        for server in self._servers:
            server.close()
        self._thawed.set()
        self._drop_connections()
        await end(task for task in self._tasks if task is not None)

    async def _serve(self, answer: Serve, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            with suppress(
                asyncio.IncompleteReadError,
                asyncio.LimitOverrunError,
                ConnectionError,
                asyncio.CancelledError,
            ):
                await answer(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = _Session(self._broker, self._thawed, reader, writer)
        self.connections_made += 1
        self._sessions.add(session)
        try:
            await session.run()
        finally:
            self._sessions.discard(session)
            session.leave()

    async def _serve_lookup(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await self._thawed.wait()
        writer.write(lookup_answer(self.address, head))
        await writer.drain()

    def _drop_connections(self) -> None:
        for session in list(self._sessions):
            session.abort()


async def _some_turns() -> None:
    """Let the loop read its sockets, and the connections process the bytes."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


class _Session:
    """One connection."""

    def __init__(
        self,
        broker: Broker,
        thawed: asyncio.Event,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._broker = broker
        self._thawed = thawed
        self._reader = reader
        self._writer = writer
        self._is_extended = False
        self._channel: Channel | None = None
        self._ready = 0
        self.in_flight = 0

    @property
    def wants(self) -> bool:
        return self.in_flight < self._ready and not self._writer.is_closing()

    def deliver(self, message: Stored) -> None:
        self.in_flight += 1
        body = message.body
        if self._is_extended and message.headers:
            body = bytes([EXT_JSON_HEADERS]) + encode_headers(message.headers) + body
        elif self._is_extended:
            body = bytes([EXT_NONE]) + body
        record = MessageRecord(message.timestamp_ns, message.attempts, message.id, body)
        self._send(FRAME_MESSAGE, record.encode())

    def timed_out(self) -> None:
        self.in_flight -= 1

    def abort(self) -> None:
        self._writer.transport.abort()

    def leave(self) -> None:
        if self._channel is not None:
            self._channel.remove_reader(self)
            self._pump()
            self._channel = None

    async def run(self) -> None:
        if await self._reader.readexactly(4) != b"  V2":
            self._send(FRAME_ERROR, b"E_BAD_PROTOCOL")
            return
        while line := await self._reader.readline():
            command, *arguments = line.split()
            body = b""
            if command in _PUBLISHES or command in {b"IDENTIFY", b"AUTH"}:
                body = await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(4)))
            await self._thawed.wait()
            error = self._execute(command, [argument.decode() for argument in arguments], body)
            if error:
                self._send(FRAME_ERROR, error.encode())
                if not error.startswith(("E_FIN", "E_REQ", "E_TOUCH")):
                    return
            await self._writer.drain()

    def _execute(self, command: bytes, arguments: list[str], body: bytes) -> str:
        """Carry out a command; returns the error to answer with, or an empty text."""
        if command in _PUBLISHES:
            return self._publish(command, arguments, body)
        if command == b"IDENTIFY":
            self._identify(json.loads(body))
        elif command == b"SUB":
            if not all(map(is_valid_name, arguments)) or self._channel is not None:
                return f"E_INVALID cannot SUB {' '.join(arguments)}"
            self._channel = self._broker.topics[arguments[0]].channel(arguments[1])
            self._channel.readers.append(self)
            self._send(FRAME_RESPONSE, OK)
        elif command == b"RDY":
            self._ready = int(arguments[0])
            self._pump()
        elif command == b"CLS":
            self._ready = 0
            self._send(FRAME_RESPONSE, CLOSE_WAIT)
        elif command in {b"FIN", b"REQ", b"TOUCH"}:
            return self._answer(command, arguments)
        elif command != b"NOP":
            return f"E_INVALID invalid command {command.decode(errors='replace')}"
        return ""

    def _identify(self, wanted: dict[str, object]) -> None:
        if not wanted.get("feature_negotiation"):
            self._send(FRAME_RESPONSE, OK)
            return
        self._is_extended = self._broker.has_headers and bool(wanted.get("extend_support"))
        granted = Negotiated(
            msg_timeout=round(self._broker.msg_timeout * 1000), extend_support=self._is_extended
        )
        self._send(FRAME_RESPONSE, granted.to_json())

    def _publish(self, command: bytes, arguments: list[str], body: bytes) -> str:
        if self._broker.refusals:
            return f"{self._broker.refusals.pop(0)} refused by the test"
        topic = arguments[0]
        if not is_valid_name(topic):
            return f'E_BAD_TOPIC {command.decode()} topic name "{topic}" is not valid'
        bodies = _bodies(body) if command.startswith(b"MPUB") else [body]
        delay = int(arguments[1]) / 1000 if command == b"DPUB" else None
        for one in bodies:
            headers: dict[str, str] = {}
            if command.endswith(b"_EXT"):
                length = int.from_bytes(one[:2])
                headers, one = json.loads(one[2 : 2 + length]), one[2 + length :]
            self._broker.publish(topic, one, delay, headers)
        self._send(FRAME_RESPONSE, OK)
        return ""

    def _answer(self, command: bytes, arguments: list[str]) -> str:
        message_id, channel = arguments[0].encode(), self._channel
        if channel is None or message_id not in channel.in_flight:
            return f"E_{command.decode()}_FAILED {command.decode()} {arguments[0]} failed ID not in flight"
        if command == b"TOUCH":
            channel.in_flight[message_id].until = self._broker.now + self._broker.msg_timeout
            return ""
        message = channel.answered(message_id, self)
        if message is None:
            return f"E_{command.decode()}_FAILED {command.decode()} {arguments[0]} failed ID not owned"
        self.in_flight -= 1
        if command == b"FIN":
            channel.finished.append(message.body)
        else:
            channel.requeued += 1
            delay = int(arguments[1]) / 1000
            channel.put(message, self._broker.now + delay if delay else None)
        self._pump()
        return ""

    def _pump(self) -> None:
        if self._channel is not None:
            self._channel.pump(self._broker.now, self._broker.msg_timeout)

    def _send(self, frame_type: int, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode_frame(frame_type, data))


def _bodies(data: bytes) -> list[bytes]:
    """The bodies in an MPUB."""
    bodies: list[bytes] = []
    at = 4
    while at < len(data):
        size = int.from_bytes(data[at : at + 4])
        bodies.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return bodies
