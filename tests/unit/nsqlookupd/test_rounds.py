"""Long work is done in steps, and all others have their turns in between."""

import asyncio

from nsqlookupd.rounds import COMMANDS_PER_TURN, Rounds


class Job:
    """Work of *total* units, of which each step does as much as it is allowed."""

    def __init__(self, total):
        self.left = total
        self.steps = []

    def step(self, at_most):
        done = min(self.left, at_most)
        self.left -= done
        self.steps.append(done)
        return done


async def test_small_work_is_done_in_next_round():
    rounds, job = Rounds(), Job(3)
    rounds.add(job.step)
    assert job.left == 3
    await asyncio.sleep(0)

    assert job.steps == [3]


async def test_large_work_is_bounded_in_each_round():
    rounds, job = Rounds(), Job(3 * COMMANDS_PER_TURN + 1)
    rounds.add(job.step)
    lefts = []
    while job.left:
        await asyncio.sleep(0)
        lefts.append(job.left)

    assert lefts == [2 * COMMANDS_PER_TURN + 1, COMMANDS_PER_TURN + 1, 1, 0]


async def test_small_workers_share_round_and_its_bound():
    rounds = Rounds()
    jobs = [Job(1) for _ in range(2 * COMMANDS_PER_TURN)]
    for job in jobs:
        rounds.add(job.step)
    await asyncio.sleep(0)

    assert [job.left for job in jobs] == [0] * COMMANDS_PER_TURN + [1] * COMMANDS_PER_TURN


async def test_large_worker_takes_turns_with_others():
    rounds, long, short = Rounds(), Job(10 * COMMANDS_PER_TURN), Job(1)
    rounds.add(long.step)
    rounds.add(short.step)
    for _ in range(2):
        await asyncio.sleep(0)

    assert short.left == 0
    assert long.left > 0
