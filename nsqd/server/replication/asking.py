"""A keeper asks the other keepers of a home that is gone what they have: the connections and timing."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from nsqcore.process.addresses import split_host_port
from nsqd.replication.fellow_hears import FellowHears
from nsqd.replication.fellows import FellowHas
from nsqd.replication.fellowship import Fellowship
from nsqd.replication.frames import AnyFrame, FellowHello, StartTls
from nsqd.replication.framing import MAGIC, FrameReader, encode
from nsqd.server.clock import now_ns

# How often each keeper is asked.
EVERY_S: Final = 1.0
_TIMEOUT_S: Final = 1.0
_READ_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a keeper tells another about itself."""

    identity: bytes
    node_id: int
    address: str
    secret: Callable[[], bytes]
    tls: ssl.SSLContext | None


async def ask(who: Introduction, home: bytes, address: str, says: list[AnyFrame]) -> list[FellowHas]:
    """Tell one other keeper what is here, and return what it has. Raises OSError and ValueError."""
    host, port = split_host_port(address)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(MAGIC)
        if who.tls is not None:
            start = encode(StartTls())
            writer.write(start)
            if await reader.readexactly(len(start)) != start:
                raise ValueError("the other keeper does not begin TLS")
            await writer.start_tls(who.tls, server_hostname=host)
        hello = FellowHello(who.identity, who.node_id, who.address, home, who.secret())
        writer.write(b"".join(map(encode, (hello, *says))))
        await writer.drain()
        return await _answer(reader)
    except asyncio.IncompleteReadError as error:
        raise ValueError("the other keeper has closed the connection") from error
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> list[FellowHas]:
    frames, hears = FrameReader(), FellowHears()
    while not hears.done:
        data = await reader.read(_READ_BYTES)
        if not data:
            raise ValueError("the other keeper has closed the connection")
        for frame in frames.feed(data):
            if not hears.take(frame):
                # For example a refusal.
                raise ValueError(f"the other keeper says {type(frame).__name__}")
    return hears.copies


class AskingFellows:
    """Asks again and again while copies are given out here; `tick` is called some ten times a second."""

    def __init__(
        self,
        fellowship: Fellowship,
        who: Introduction,
        done: Callable[[], None],
        asks: Callable[[Introduction, bytes, str, list[AnyFrame]], Awaitable[list[FellowHas]]] = ask,
    ) -> None:
        """*done* is called when something may be given out now."""
        self._fellowship = fellowship
        self._who = who
        self._done = done
        self._asks = asks
        self._asked_ns: dict[tuple[bytes, str], int] = {}
        self._tasks: dict[tuple[bytes, str], asyncio.Task[None]] = {}

    def tick(self, now: int) -> None:
        wanted = self._fellowship.to_ask(now)
        for one in [one for one in self._asked_ns if one not in wanted]:
            del self._asked_ns[one]
        for one in wanted:
            if one in self._tasks or now - self._asked_ns.get(one, 0) < EVERY_S * 1e9:
                continue
            self._asked_ns[one] = now
            task = asyncio.create_task(self._ask(*one), name=f"fellow {one[1]}")
            self._tasks[one] = task
            task.add_done_callback(lambda _task, one=one: self._tasks.pop(one))  # type: ignore[misc]
        if wanted:
            self._done()

    async def _ask(self, home: bytes, address: str) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                says = self._fellowship.says(home, now_ns())
                copies = await self._asks(self._who, home, address, says)
        except (OSError, ValueError, TimeoutError):
            self._fellowship.silent(home, address)
        else:
            self._fellowship.heard(home, address, copies, now_ns())
        self._done()

    async def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
