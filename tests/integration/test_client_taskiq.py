"""taskiq's own worker runs tasks that come over NSQ."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from taskiq import SimpleRetryMiddleware
from taskiq.api import run_receiver_task

from nsqclient import Config
from nsqclient.integrations.taskiq import DeadLetters, NsqBroker
from nsqclient.testing import MemoryNsqd
from tests.support.waiting import eventually


@pytest.fixture
def nsqd(memory_nsqd):
    return memory_nsqd


@asynccontextmanager
async def working(broker):
    """A worker of this broker, which is shut down at the end."""
    await broker.startup()
    worker = asyncio.create_task(run_receiver_task(broker))
    try:
        yield
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await broker.shutdown()


async def test_tasks_are_published_run_and_finished(nsqd, caplog):
    broker = NsqBroker(nsqd.address)
    done = []

    @broker.task
    async def add(left: int, right: int) -> None:
        done.append(left + right)

    async with working(broker):
        await add.kiq(1, 2)
        await add.kicker().with_labels(delay=60).kiq(3, 4)
        await eventually(lambda: len(nsqd.finished("taskiq", "workers")) == 1, "the first was run")
        assert done == [3]
        nsqd.advance(60)
        await eventually(lambda: len(nsqd.finished("taskiq", "workers")) == 2, "the second was due")

    assert done == [3, 7]
    assert [one.getMessage() for one in caplog.records if one.name == "nsqclient" and one.levelno > 20] == []


async def test_task_whose_worker_ended_is_run_by_another(nsqd):
    first, second = NsqBroker(nsqd.address), NsqBroker(nsqd.address)
    ran = []
    for broker, name in ((first, "first"), (second, "second")):

        async def work(name: str = name) -> None:
            ran.append(name)
            if name == "first":
                await asyncio.sleep(100)

        broker.register_task(work, task_name="work")
    async with working(first):
        await first.find_task("work").kiq()
        await eventually(lambda: ran == ["first"], "the first has begun")
    async with working(second):
        await eventually(lambda: nsqd.finished("taskiq", "workers"), "the second has done it")

    assert ran == ["first", "second"]


async def test_tasks_that_wait_for_each_other_run_whatever_config_is_for(nsqd):
    broker = NsqBroker(nsqd.address, config=Config(client_id="x"))
    both = asyncio.Barrier(2)

    @broker.task
    async def meet() -> None:
        await both.wait()

    async with working(broker):
        await meet.kiq()
        await meet.kiq()
        await eventually(lambda: len(nsqd.finished("taskiq", "workers")) == 2, "both were run")


async def test_task_becomes_dead_letter_after_last_retry():
    with MemoryNsqd(headers=True) as nsqd:
        broker = NsqBroker(nsqd.address).with_middlewares(
            DeadLetters("dead"), SimpleRetryMiddleware(default_retry_count=2, default_retry_label=True)
        )
        runs = []

        @broker.task
        async def fail(number: int) -> None:
            runs.append(number)
            raise ValueError(number)

        async with working(broker):
            await fail.kiq(7)
            await eventually(lambda: nsqd.published("dead"), "it is a dead letter")
            await eventually(lambda: len(nsqd.finished("taskiq", "workers")) == 2, "both runs are finished")

        assert runs == [7, 7]
        [headers] = nsqd.published_headers("dead")
        assert (headers["dead-topic"], headers["dead-channel"]) == ("taskiq", "workers")
        assert headers["dead-reason"] == "ValueError: 7"
        assert json.loads(nsqd.published("dead")[0])["args"] == [7]
