"""Time-outs count the time in which the event loop ran."""

import asyncio
import random

import pytest

from nsqclient._timeouts import RunningTimer, running_timeout
from tests.support.simulated_loop import SimulatedLoop, SimulatedTime


@pytest.fixture
def clock():
    return SimulatedTime()


@pytest.fixture
def run(clock):
    """Run a coroutine on a loop on which time passes without waiting."""
    loop = SimulatedLoop(clock, random.Random(1))
    yield loop.run_until_complete
    loop.close()


def test_pause_of_process_is_not_counted(run, clock):
    async def seconds_it_ran() -> float:
        loop = asyncio.get_running_loop()
        called, began = asyncio.Event(), loop.time()
        RunningTimer(8, called.set)
        await asyncio.sleep(3.5)
        clock.advance(1000)  # the process is stopped during that
        await called.wait()
        return loop.time() - began - 1000

    assert 8 <= run(seconds_it_ran()) <= 9


def test_answer_that_arrived_during_pause_is_not_late(run, clock):
    async def answer_arrives_during_a_pause() -> str:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        async with running_timeout(2):
            await asyncio.sleep(1.9)
            clock.advance(60)
            # Sockets are read after the timers have run.
            loop.call_later(0.01, answer.set_result, "here")
            return await answer

    assert run(answer_arrives_during_a_pause()) == "here"


def test_zero_seconds_are_no_limit(run):
    async def wait_long() -> str:
        async with running_timeout(0):
            await asyncio.sleep(1000)
        return "done"

    assert run(wait_long()) == "done"


def test_timeout_ends_on_machine_that_is_always_late(run, clock):
    async def wait_among_pauses() -> None:
        loop = asyncio.get_running_loop()

        def pause() -> None:
            clock.advance(1)
            loop.call_later(0.01, pause)

        pause()
        async with running_timeout(1):
            await asyncio.sleep(3600)

    with pytest.raises(TimeoutError):
        run(wait_among_pauses())
