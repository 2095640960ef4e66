"""Statistics of thousands of topics are gathered in chunks; other clients are served in between."""

import asyncio

import pytest

from tests.support.http_doors import Doors
from tests.support.memory_transport import MemoryTransport

TOPICS = 2000


@pytest.fixture
async def doors(tmp_path):
    async with Doors(tmp_path / "data") as doors:
        broker = doors.nsqd.broker
        for number in range(TOPICS):
            topic = broker.topic(f"t{number}#ephemeral", 1)
            broker.channel(topic, "c")
        yield doors


@pytest.mark.parametrize("path", ["/stats?format=json", "/stats", "/metrics"])
async def test_others_have_their_turn_while_statistics_are_gathered(doors, path):
    client = MemoryTransport()
    client.connect(doors.front())
    client.say(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode())
    turns = 0
    while f"t{TOPICS - 1}#ephemeral".encode() not in client.received:
        turns += 1
        await asyncio.sleep(0)
    client.close()
    await asyncio.sleep(0)

    assert turns > TOPICS / 50


async def test_topic_deleted_during_read_is_left_out(doors):
    client = MemoryTransport()
    client.connect(doors.front())
    client.say(b"GET /stats?format=json HTTP/1.1\r\nHost: x\r\n\r\n")
    for _ in range(5):
        await asyncio.sleep(0)
    doors.nsqd.broker.delete_topic("t999#ephemeral")
    while not client.received.endswith(b"}"):  # noqa: ASYNC110 - rounds, not time
        await asyncio.sleep(0)
    client.close()
    await asyncio.sleep(0)

    assert b"t998#ephemeral" in client.received
    assert b"t999#ephemeral" not in client.received
