"""nsqadmin in the test's own process, in front of stubs whose statistics the test sets."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import aiohttp

from nsqadmin.collecting.membership import MAX_REST_S
from nsqadmin.daemon import NsqadminDaemon
from nsqadmin.options import NsqadminOptions
from nsqclient.wire.durations import MILLISECOND
from nsqcore.http.https_sockets import open_http
from nsqcore.process.logs import Log, LogLevel
from tests.support.site import words_of
from tests.support.stub_cluster import Size, StubCluster

# With this a frozen node soon counts as silent, but a slow one on a busy machine does not.
SOON_SILENT = {"http_client_request_timeout": 2000 * MILLISECOND}


class Reply:
    """An answer of nsqadmin."""

    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def text(self) -> str:
        """Return the words of the page, without tags."""
        return words_of(self.body)

    @property
    def html(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class StubSite:
    """Stubs of nsqd and nsqlookupd, an nsqadmin in front of them, and a browser's side of HTTP."""

    def __init__(self, stubs: StubCluster, daemon: NsqadminDaemon, log: io.StringIO) -> None:
        self.stubs = stubs
        self.daemon = daemon
        self.nodes = stubs.nodes
        self._log = log
        self._http = aiohttp.ClientSession(f"http://{daemon.address}", cookie_jar=aiohttp.DummyCookieJar())

    @property
    def log(self) -> str:
        return self._log.getvalue()

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self.nodes[number].port}"

    @property
    def lookupds(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self.stubs.lookupd_ports]

    async def ask(self, method: str, path: str, body: bytes | str | None = None, **headers: str) -> Reply:
        """Request *path*; names of headers are given with ``_`` in place of ``-``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._http.request(method, path, data=body, headers=named, allow_redirects=False) as reply:
            return Reply(reply.status, reply.headers, await reply.read())

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.ask("GET", path, **headers)

    async def submit(
        self, path: str = "/action", headers: dict[str, str] | None = None, **fields: str | list[str]
    ) -> Reply:
        form = {"Content_Type": "application/x-www-form-urlencoded", **(headers or {})}
        return await self.ask("POST", path, urlencode({"confirmed": "yes", **fields}, doseq=True), **form)

    async def follow(self, reply: Reply) -> Reply:
        """Request the page to which a submitted form redirects, with the cookie that it set."""
        assert reply.status == 303, reply.text
        cookie = reply.headers.get("Set-Cookie", "").partition(";")[0]
        return await self.get(reply.headers["Location"], Cookie=cookie)

    async def until(
        self, holds: Callable[[], Awaitable[Any]], what: str, seconds: float = 10.0 + MAX_REST_S
    ) -> Any:
        """Ask repeatedly until *holds* returns a true value.

        On a busy machine a list may come late; nsqadmin asks for it again after `MAX_REST_S` at most.
        """
        try:
            async with asyncio.timeout(seconds):
                while True:
                    if found := await holds():
                        return found
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"it did not come about that {what}") from None

    async def problems(self) -> set[tuple[str, str, str]]:
        """Return what the index lists as problems: level, kind, and topic/channel or node."""
        found = (await self.get("/?format=json")).json()["problems"]
        return {
            (
                one["level"],
                one["state"],
                one.get("node") or "/".join(filter(None, (one.get("topic"), one.get("channel")))),
            )
            for one in found
        }

    async def problem(self, level: str, state: str, place: str) -> None:
        """Wait until the index lists this problem."""

        async def listed() -> bool:
            return (level, state, place) in await self.problems()

        await self.until(listed, f"{place} is {state}")

    async def no_problems(self) -> None:
        """Wait until the index lists no problem."""

        async def well() -> bool:
            return not await self.problems()

        await self.until(well, "there is no problem")

    async def round(self) -> None:
        """Wait until the index shows statistics that were requested after this call."""
        before = self.daemon.collector.adder.sum

        async def newer() -> bool:
            return self.daemon.collector.adder.sum is not before

        await self.until(newer, "a round was added up")

    async def close(self) -> None:
        await self._http.close()


@asynccontextmanager
async def stub_site(
    nodes: int = 2,
    topics: int = 3,
    channels: int = 2,
    *,
    lookupds: int = 1,
    level: LogLevel = LogLevel.INFO,
    before: Callable[[StubCluster], None] | None = None,
    **options: Any,
) -> AsyncIterator[StubSite]:
    """Start stubs, which *before* prepares, and an nsqadmin with *options*; without lookupds, with a list."""
    stubs = StubCluster(Size(nodes, topics, channels, nodes), lookupds)
    await stubs.start()
    if before is not None:
        before(stubs)
    places = (
        {"nsqlookupd_http_addresses": tuple(f"127.0.0.1:{port}" for port in stubs.lookupd_ports)}
        if lookupds
        else {"nsqd_http_addresses": tuple(f"127.0.0.1:{node.port}" for node in stubs.nodes)}
    )
    given = NsqadminOptions(
        http_address=("127.0.0.1:0",),
        **{"collect_interval": 100 * MILLISECOND, **places, **options},
    )
    text = io.StringIO()
    log = Log("", level, text)
    try:
        async with NsqadminDaemon(given, log, open_http(given)) as daemon:
            site = StubSite(stubs, daemon, text)
            try:
                yield site
            finally:
                await site.close()
    finally:
        await stubs.stop()
