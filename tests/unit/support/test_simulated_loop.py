"""The simulated loop: time passes without waiting, and jobs interleave the same way for the same seed."""

import asyncio
import random
import time

import pytest

from tests.support.simulated_loop import Deadlock, SimulatedLoop, SimulatedTime


def played(seed, main):
    """Run a coroutine function on a new loop, which is passed to it."""
    clock = SimulatedTime()
    loop = SimulatedLoop(clock, random.Random(seed))
    try:
        with clock.everywhere():
            return loop.run_until_complete(main(loop))
    finally:
        loop.close()


def test_an_hour_passes_at_once_on_every_clock():
    async def sleep(_loop):
        before = time.monotonic(), time.time()
        await asyncio.sleep(3600)
        return time.monotonic() - before[0], time.time() - before[1]

    assert played(1, sleep) == pytest.approx((3600, 3600), abs=0.01)


def test_the_clock_on_the_wall_steps_alone():
    async def step(loop):
        before = time.monotonic(), time.time()
        loop.clock.set_wall(-3600)
        return time.monotonic() - before[0], time.time() - before[1]

    assert played(1, step) == (0, -3600)


def test_jobs_hand_over_to_the_loop_and_to_each_other_differently_for_each_seed():
    async def work(loop):
        seen = []

        def job(name):
            for step in range(3):
                loop.maybe_switch()
                seen.append(f"{name}{step}")
            return name

        results = await asyncio.gather(*(asyncio.to_thread(job, name) for name in "ab"))
        return results, "".join(seen)

    orders = {seed: played(seed, work) for seed in range(40)}

    assert len({order for _, order in orders.values()}) > 5
    assert all(results == ["a", "b"] for results, _ in orders.values())
    assert orders == {seed: played(seed, work) for seed in range(40)}


def test_what_a_job_raises_reaches_who_waits_for_it():
    async def work(_loop):
        await asyncio.to_thread(int, "x")

    with pytest.raises(ValueError, match="invalid literal"):
        played(1, work)


def test_waiting_for_nothing_is_an_error():
    async def wait(loop):
        await loop.create_future()

    with pytest.raises(Deadlock):
        played(1, wait)
