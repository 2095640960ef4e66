"""The producers of the counted load: one that looks nodes up, and those that reach nsqd through a Service.

None of them retries: each failure is to be counted.
"""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final, Protocol, Self

import aiohttp

from nsqclient.wire.address import split_address
from nsqclient.wire.commands import identify, pub
from nsqclient.wire.frames import FRAME_RESPONSE, FrameParser

_MAGIC: Final = b"  V2"
_HEARTBEAT: Final = b"_heartbeat_"
_ANSWER_SECONDS: Final = 10.0
_READ_SIZE: Final = 65_536


class Publisher(Protocol):
    async def publish(self, topic: str, body: bytes) -> None:
        """Return when nsqd has confirmed the message; any error means that it has not."""


class RawProducer:
    """NSQ's protocol over one connection, one publish at a time; it connects again after a close."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._writer: asyncio.StreamWriter | None = None
        self._pending: deque[asyncio.Future[None]] = deque()
        self._reading: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def publish(self, topic: str, body: bytes) -> None:
        async with self._turn, asyncio.timeout(_ANSWER_SECONDS):
            # Read a close after the last answer first, as other clients do in a separate thread.
            await asyncio.sleep(0)
            if self._writer is None:
                await self._connect()
            await self._ask(pub(topic, body))

    async def _connect(self) -> None:
        reader, self._writer = await asyncio.open_connection(*split_address(self._address))
        self._pending = deque()
        self._reading = asyncio.create_task(self._read(reader, self._writer, self._pending))
        await self._ask(_MAGIC + identify({"client_id": "counted"}))

    def _ask(self, command: bytes) -> asyncio.Future[None]:
        if self._writer is None:
            raise ConnectionError("nsqd closed the connection")
        answer = asyncio.get_running_loop().create_future()
        self._pending.append(answer)
        self._writer.write(command)
        return answer

    async def _read(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pending: deque[asyncio.Future[None]]
    ) -> None:
        parser, reason = FrameParser(), "nsqd closed the connection"
        try:
            while data := await reader.read(_READ_SIZE):
                for kind, payload in parser.feed(data):
                    if payload == _HEARTBEAT:
                        writer.write(b"NOP\n")
                        continue
                    answer = pending.popleft()
                    if answer.done():
                        continue
                    if kind == FRAME_RESPONSE:
                        answer.set_result(None)
                    else:
                        answer.set_exception(RuntimeError(payload.decode()))
        except OSError as error:
            reason = str(error)
        finally:
            self._writer = None
            writer.close()
            for answer in pending:
                if not answer.done():
                    answer.set_exception(ConnectionError(reason))
            with suppress(OSError):
                await writer.wait_closed()


class HttpProducer:
    """``POST /pub``, with a connection for each message or with keep-alive connections."""

    def __init__(self, address: str, *, keep_alive: bool) -> None:
        self._url = f"http://{address}/pub"
        self._keep_alive = keep_alive
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=not self._keep_alive, use_dns_cache=False),
            timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def publish(self, topic: str, body: bytes) -> None:
        async with self._session.post(self._url, params={"topic": topic}, data=body) as answer:
            text = await answer.text()
            if answer.status != 200:
                raise RuntimeError(f"{answer.status} {text[:100]}")
