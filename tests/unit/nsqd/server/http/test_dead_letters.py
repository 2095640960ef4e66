"""Dead letters are sent back by several clients concurrently, and while a drain begins."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from nsqcore.http.api import ApiError
from nsqcore.process.logs import Log, LogLevel
from nsqd.log.headers import extension
from nsqd.server.clock import now_ns
from nsqd.server.http.dead_letters import DeadLettersApi
from nsqd.server.messages.finding import Finder
from tests.support.http_request import Asked
from tests.support.turns import Bench


class SlowFinder(Finder):
    """Finds nothing until its gate is open."""

    def __init__(self, disk):
        super().__init__(disk, ThreadPoolExecutor(1))
        self.gate = asyncio.Event()
        self.gate.set()

    async def pick(self, *asked):
        await self.gate.wait()
        return await super().pick(*asked)


@pytest.fixture
async def bench(tmp_path):
    """A dead letter of the channel `c` of topic `t`."""
    bench = Bench(tmp_path)
    bench.broker.channel(bench.broker.topic("t", now_ns()), "c")
    letter = extension({"dead-topic": "t", "dead-channel": "c"})
    bench.broker.topic("dead", now_ns()).stage(b"m", now_ns(), 0, letter)
    await bench.rest()
    return bench


@pytest.fixture
async def finder(bench):
    return SlowFinder(bench.data.disk)


@pytest.fixture
async def sending(bench, finder):
    api = DeadLettersApi(bench.broker, finder, bench.write_batch, Log("[test] ", LogLevel.FATAL))
    return lambda: asyncio.create_task(api.send_back(Asked(topic="dead")))


async def test_letters_that_are_found_when_node_drains_stay(bench, finder, sending):
    finder.gate.clear()
    task = sending()
    await asyncio.sleep(0)
    bench.broker.draining = True
    finder.gate.set()

    with pytest.raises(ApiError, match="DRAINING"):
        await task

    assert bench.broker.topics["t"].channels["c"].backlog.pending.count == 0
    assert bench.broker.is_idle


async def test_drain_waits_for_letters_that_are_being_sent_back(bench, sending):
    task = sending()
    while not bench.broker.topics["t"].channels["c"].backlog.pending.count:
        assert not task.done()
        await asyncio.sleep(0)
    bench.broker.draining = True
    assert not bench.broker.is_idle

    await task

    assert bench.broker.is_idle
    assert bench.broker.topics["dead"].backlog.pending.count == 0


@pytest.fixture
async def other(bench):
    """A dead letter of another channel."""
    other = bench.broker.channel(bench.broker.topics["t"], "other")
    letter = extension({"dead-topic": "t", "dead-channel": "other"})
    dead = bench.broker.topics["dead"]
    dead.stage(b"m", now_ns(), 0, letter)
    bench.broker.dirty[dead] = None
    await bench.rest()
    return other


async def test_dead_letter_goes_back_once_for_several_requests(bench, other, sending):
    tasks = [sending() for _ in range(3)]

    answers = [json.loads((await task).body) for task in tasks]

    assert sum(answer["sent"] for answer in answers) == 2
    assert (bench.broker.topics["t"].channels["c"].backlog.pending.count, other.backlog.pending.count) == (
        1,
        1,
    )


async def test_letter_that_is_taken_while_earlier_ones_are_stored_stays(bench, other, sending):
    dead = bench.broker.topics["dead"]
    task = sending()
    while not bench.broker.topics["t"].channels["c"].backlog.pending.count:
        assert not task.done()
        await asyncio.sleep(0)
    dead.backlog.remove([(0, dead.backlog.end)])

    answer = json.loads((await task).body)

    assert (answer["found"], answer["sent"]) == (2, 1)
    assert other.backlog.pending.count == 0
