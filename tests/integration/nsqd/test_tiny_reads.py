"""The memory of a connection whose long body arrives in tiny reads is in proportion to the body."""

import asyncio
import tracemalloc

import pytest

from nsqd.replication.framing import FrameReader
from tests.support.engine import Node
from tests.support.http_doors import Doors
from tests.support.memory_transport import MemoryTransport

SIZE = 60_000
HEAD = b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"


@pytest.fixture
async def doors(tmp_path):
    async with Doors(tmp_path) as doors:
        yield doors


def session(_doors):
    node = Node()
    found, _ = node.session()
    found.receive(b"  V2PUB t\n" + (1_000_000).to_bytes(4), node.now_ns)
    return lambda data: found.receive(data, node.now_ns)


def between_nodes(_doors):
    reader = FrameReader()

    def feed(data):
        assert list(reader.feed(data)) == []

    feed((1_000_000).to_bytes(4, "little"))
    return feed


def http(make):
    transport = MemoryTransport()
    transport.connect(make())
    transport.say(HEAD)
    return transport.say


RECEIVERS = {
    "session": session,
    "between nodes": between_nodes,
    "plain publish": lambda doors: http(doors.front),
    "aiohttp": lambda doors: http(doors.alone),
}


@pytest.mark.parametrize("kind", RECEIVERS)
async def test_body_in_tiny_reads_takes_little_more_memory_than_its_size(doors, kind):
    receive = RECEIVERS[kind](doors)
    await asyncio.sleep(0.05)
    tracemalloc.start()
    try:
        for number in range(SIZE // 2):
            receive(number.to_bytes(2, "big"))
            if not number % 50:
                await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert SIZE <= used < 1.5 * SIZE
