"""Moving messages to the dead letters when some of them are lost."""

import asyncio

import pytest

from nsqcore.process.logs import Log, LogLevel
from nsqd.engine.deaths import REQUEUED
from nsqd.server import dead_letters
from nsqd.server.clock import now_ns
from nsqd.server.dead_letters import DeadLetters
from nsqd.storage.topic_store import store_of
from tests.support.turns import Bench
from tests.support.waiting import eventually


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(dead_letters, "_PAUSE_S", 0.01)

    async def make():
        bench = Bench(tmp_path)
        bench.turn.bury = DeadLetters(bench.broker, bench.turn, Log("[test] ", LogLevel.FATAL), "node").bury
        return bench

    return make


async def test_a_lost_message_is_counted_once_however_often_its_neighbours_are_tried(bench):
    bench = await bench()
    topic = bench.broker.topic("t", now_ns())
    channel = bench.broker.channel(topic, "c")
    for body in (b"lost", b"there"):
        topic.stage(body, now_ns())
        bench.broker.dirty[topic] = None
        await bench.rest()
        store_of(topic).seal()
    topic.log.release(topic.log.next_seq)
    store_of(topic).segments[0].path.unlink()
    channel.give_up_below(channel.end)
    channel.dying.add(channel.end - 2, channel.end, REQUEUED)

    bench.broker.tell_disk_low(True)
    bench.turn.bury(channel)
    await asyncio.sleep(0.1)
    assert channel.dying.count == 2
    bench.broker.tell_disk_low(False)
    await eventually(lambda: not channel.dying.count, "they are in the dead letters")

    assert (channel.lost_count, channel.dead_count) == (1, 1)
    assert bench.broker.topics["t.c.dead"].backlog.depth == 1
    await bench.rest()
    bench.turn.close()
