"""Heartbeats and silence, on a clock that the test moves."""

import asyncio
import random

import pytest

from nsqd.server.heartbeats import LATE_S, Heartbeats
from tests.support.simulated_loop import SimulatedLoop, SimulatedTime


class Quiet:
    """A connection whose client says nothing by itself."""

    def __init__(self, loop):
        self.loop = loop
        self.began = loop.time()
        self.deaf = False
        self.ended = False
        self.beats = []
        self.cuts = []

    def beat(self):
        if not self.ended:
            self.beats.append(round(self.loop.time() - self.began, 2))
        return not self.ended

    def cut_off(self, silent_s):
        self.cuts.append((round(self.loop.time() - self.began, 2), round(silent_s, 2)))
        self.ended = True


@pytest.fixture
def play():
    """Run a scene on a simulated loop with a connection, its heartbeats and a way to let time pass."""

    def run(scene):
        loop = SimulatedLoop(SimulatedTime(), random.Random(1))

        async def main():
            connection = Quiet(loop)
            await scene(connection, Heartbeats(connection), asyncio.sleep)
            return connection

        try:
            return loop.run_until_complete(main())
        finally:
            loop.close()

    return run


def test_client_that_says_nothing_is_cut_off_after_two_heartbeats(play):
    async def scene(_connection, heartbeats, wait):
        heartbeats.start(10)
        await wait(60)

    connection = play(scene)

    assert connection.beats == [10.0, 20.0]
    assert connection.cuts == [(20.05, 20.05)]


def test_client_that_answers_is_kept(play):
    async def scene(connection, heartbeats, wait):
        heartbeats.start(10)
        for _ in range(6):
            await wait(10)
            heartbeats.heard = connection.loop.time()

    connection = play(scene)

    assert connection.cuts == []
    assert len(connection.beats) in (5, 6)


def test_client_that_is_not_listened_to_is_not_silent(play):
    async def scene(connection, heartbeats, wait):
        connection.deaf = True
        heartbeats.start(10)
        await wait(60)

    assert play(scene).cuts == []


def test_process_that_was_stopped_gives_its_clients_interval_to_answer(play):
    async def scene(connection, heartbeats, wait):
        heartbeats.start(10)
        await wait(9)
        # The process is stopped for a while.
        connection.loop.clock.advance(30 + LATE_S)
        await wait(5)
        assert connection.cuts == []
        await wait(20)

    connection = play(scene)

    assert [silent for _, silent in connection.cuts] == [pytest.approx(20, abs=1)]


def test_silent_client_without_heartbeats_is_not_cut_off(play):
    async def scene(_connection, heartbeats, wait):
        heartbeats.start(0)
        await wait(100)
        heartbeats.start(1)
        heartbeats.stop()
        await wait(100)

    connection = play(scene)

    assert (connection.beats, connection.cuts) == ([], [])
