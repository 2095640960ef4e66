"""An nsqlookupd in this process, on real sockets, with clients that speak its two protocols.

When the original is tested (tests/support/beside.py), the nsqlookupd is a process with the same options.
"""

import asyncio
import io
import json
from contextlib import AsyncExitStack

import aiohttp
import pytest

from nsqclient.wire.durations import SECOND
from nsqcore.lookup_protocol import MAGIC_V1, encode_identify
from nsqcore.process.logs import Log
from nsqlookupd.daemon import Nsqlookupd
from nsqlookupd.opening import open_all
from nsqlookupd.options import NsqlookupdOptions
from tests.support import beside

TIMEOUT_S = 10


class Announcer:
    """A connection that announces topics as an nsqd does, or misbehaves as a test wants."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    @property
    def address(self):
        host, port = self.writer.get_extra_info("sockname")
        return f"{host}:{port}"

    def send(self, data):
        self.writer.write(data)

    async def reply(self):
        async with asyncio.timeout(TIMEOUT_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(size)

    async def ask(self, command):
        self.send(command)
        return await self.reply()

    async def identify(self, address="nsqd-a", tcp_port=4150, http_port=4151, **more):
        fields = {"broadcast_address": address, "tcp_port": tcp_port, "http_port": http_port}
        return json.loads(await self.ask(encode_identify({**fields, "version": "1.3.0", **more})))

    async def rest(self):
        """All bytes that come until the peer closes."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def close(self):
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return  # the daemon has closed the connection already


class Lookupd:
    """The daemon under test and its clients; the end of the test closes all of them."""

    def __init__(self, daemon, ports, read_log, stack):
        self.daemon = daemon
        self.tcp_port, self.http_port = ports
        self.logged = read_log
        self._stack = stack

    async def connect(self, magic=MAGIC_V1):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.tcp_port)
        announcer = Announcer(reader, writer)
        self._stack.push_async_callback(announcer.close)
        announcer.send(magic)
        return announcer

    async def nsqd(self, address="nsqd-a", **more):
        """An identified announcer."""
        announcer = await self.connect()
        await announcer.identify(address, **more)
        return announcer

    async def http(self, method, path, **more):
        """Status, header mapping and body of one request; the path is sent as it stands."""
        url = f"http://127.0.0.1:{self.http_port}"
        async with aiohttp.ClientSession(url) as session:
            target = aiohttp.client.URL(path, encoded=True)
            async with session.request(method, target, allow_redirects=False, **more) as answer:
                return answer.status, answer.headers, await answer.read()

    async def get(self, path):
        status, _, body = await self.http("GET", path)
        assert status == 200, (path, status, body)
        return json.loads(body)

    async def post(self, path):
        status, _, body = await self.http("POST", path)
        return status, body

    async def producers(self, topic):
        answer = await self.get(f"/lookup?topic={topic}")
        return [producer["broadcast_address"] for producer in answer["producers"]]

    def lines(self):
        return [line.split(" ", 2)[2] for line in self.logged().splitlines()]


def start_original(cluster, options):
    flags = [f"--{name.replace('_', '-')}={value}ns" for name, value in options.items()]  # all are durations
    return cluster.nsqlookupd("--broadcast-address=lookup.test", *flags)


@pytest.fixture
async def start(cluster):
    """A function that starts an nsqlookupd with the given options."""
    async with AsyncExitStack() as stack:

        async def start(**options):
            if not beside.OURS:
                original = start_original(cluster, options)
                return Lookupd(original, (original.tcp_port, original.http_port), original.logs, stack)
            log = io.StringIO()
            given = NsqlookupdOptions(
                tcp_address="127.0.0.1:0",
                http_address=("127.0.0.1:0",),
                broadcast_address="lookup.test",
                **options,
            )
            lines = Log("", stream=log)
            daemon = Nsqlookupd(given, lines, open_all(given, lines))
            await daemon.start()
            stack.push_async_callback(daemon.stop)
            return Lookupd(daemon, (daemon.tcp.port, daemon.http.port), log.getvalue, stack)

        yield start


@pytest.fixture
async def lookupd(start):
    return await start(tombstone_lifetime=45 * SECOND)
