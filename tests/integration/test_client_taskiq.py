"""taskiq's own worker runs tasks that come over NSQ."""

import asyncio

import pytest
from taskiq.api import run_receiver_task

from nsqclient import Config
from nsqclient.integrations.taskiq import NsqBroker
from nsqclient.testing import MemoryNsqd
from tests.support.waiting import eventually


@pytest.fixture
def nsqd():
    with MemoryNsqd() as nsqd:
        yield nsqd


async def test_tasks_are_published_run_and_finished(nsqd):
    broker = NsqBroker(nsqd.address)
    done = []

    @broker.task
    async def add(left: int, right: int) -> None:
        done.append(left + right)

    await broker.startup()
    worker = asyncio.create_task(run_receiver_task(broker))
    await add.kiq(1, 2)
    await add.kicker().with_labels(delay=60).kiq(3, 4)
    await eventually(lambda: len(nsqd.finished("taskiq", "workers")) == 1, "the first was run")

    assert done == [3]
    nsqd.advance(60)
    await eventually(lambda: len(nsqd.finished("taskiq", "workers")) == 2, "the second was due")
    assert done == [3, 7]
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await broker.shutdown()


async def test_a_task_whose_worker_ended_is_run_by_another(nsqd):
    first, second = NsqBroker(nsqd.address), NsqBroker(nsqd.address)
    ran = []
    for broker, name in ((first, "first"), (second, "second")):

        async def work(name: str = name) -> None:
            ran.append(name)
            if name == "first":
                await asyncio.sleep(100)

        broker.register_task(work, task_name="work")
        await broker.startup()
    worker = asyncio.create_task(run_receiver_task(first))
    await first.find_task("work").kiq()
    await eventually(lambda: ran == ["first"], "the first has begun")
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await first.shutdown()
    worker = asyncio.create_task(run_receiver_task(second))
    await eventually(lambda: nsqd.finished("taskiq", "workers"), "the second has done it")
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await second.shutdown()

    assert ran == ["first", "second"]


async def test_tasks_that_wait_for_each_other_run_whatever_the_config_is_for(nsqd):
    broker = NsqBroker(nsqd.address, config=Config(client_id="x"))
    both = asyncio.Barrier(2)

    @broker.task
    async def meet() -> None:
        await both.wait()

    await broker.startup()
    worker = asyncio.create_task(run_receiver_task(broker))
    await meet.kiq()
    await meet.kiq()
    try:
        await eventually(lambda: len(nsqd.finished("taskiq", "workers")) == 2, "both were run")
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await broker.shutdown()
