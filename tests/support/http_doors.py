"""The two ways into nsqd over HTTP, compared: through the front, and directly to aiohttp.

A whole nsqd runs in the test's own loop; connections to it are in memory, so that a test knows when
everything that was sent has been handled.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from nsqcore.http.server import HttpServer
from nsqcore.process.listen import bind
from nsqcore.process.logs import Log, LogLevel
from nsqd.options import NsqdOptions
from nsqd.server.daemon import Nsqd
from nsqd.server.opening import open_all
from tests.support.memory_transport import MemoryTransport, quiet

_HEAD = re.compile(rb"HTTP/\d\.\d (\d{3}) [^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n")
_LENGTH = re.compile(rb"(?im)^content-length: *(\d+)")
_CLOSE = re.compile(rb"(?im)^connection: *close")


@dataclass(frozen=True)
class Outcome:
    """The result of a connection: the answers in order, and whether it stays open.

    ``headers`` has the lines of each answer but ``Date``.
    """

    answers: tuple[tuple[int, bytes], ...]
    headers: tuple[frozenset[bytes], ...]
    kept: bool

    @property
    def statuses(self) -> list[int]:
        return [status for status, _ in self.answers]


class Doors:
    """An nsqd that can be reached in both ways."""

    def __init__(self, folder: Path, **options: Any) -> None:
        log = Log("[nsqd] ", LogLevel.FATAL)
        folder.mkdir(parents=True, exist_ok=True)
        given = NsqdOptions(
            data_path=str(folder), tcp_address="127.0.0.1:0", http_address=("127.0.0.1:0",), **options
        )
        self.nsqd = Nsqd(given, log, open_all(given, log))
        assert self.nsqd.http is not None
        self._with_front = self.nsqd.http
        self._alone = HttpServer(
            [bind("127.0.0.1:0")], self._with_front._router.routes, log, refuse_foreign=True
        )
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self.nsqd.run(self._stop))
        while not self.nsqd.info.serving:
            assert not self._running.done(), self._running.result()
            await asyncio.sleep(0)
        await self._alone.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._alone.close()
        self._stop.set()
        assert self._running is not None
        await self._running

    def front(self) -> asyncio.Protocol:
        return self._with_front.factory()

    def alone(self) -> asyncio.Protocol:
        return self._alone.factory()

    def published(self) -> dict[str, int]:
        return {name: topic.message_count for name, topic in self.nsqd.broker.topics.items()}


async def outcome(make: Callable[[], asyncio.Protocol], *pieces: bytes) -> Outcome:
    """Send *pieces* on a new connection, each after the one before was handled, and return the result."""
    transport = MemoryTransport()
    transport.connect(make())
    for piece in pieces:
        await quiet(transport)
        transport.say(piece)
    await quiet(transport)
    found = parse(transport.received, kept=not transport.is_closing())
    transport.close()
    await asyncio.sleep(0)
    return found


def parse(received: bytes, *, kept: bool) -> Outcome:
    answers, headers = [], []
    while received:
        head = _HEAD.match(received)
        assert head is not None, received
        length = _LENGTH.search(head[2])
        end = head.end() + (int(length[1]) if length and head[1] != b"100" else 0)
        answers.append((int(head[1]), received[head.end() : end]))
        headers.append(frozenset(line for line in head[2].splitlines() if not line.startswith(b"Date: ")))
        kept = kept and head[0].startswith(b"HTTP/1.1") and not _CLOSE.search(head[2])
        received = received[end:]
    return Outcome(tuple(answers), tuple(headers), kept)
