"""When the loop polls after an answer, and when it stops doing so."""

import itertools

import pytest

from nsqd.server.busy_poll import BusyPoll

FOR_NS = 50


class Loop:
    """A clock, and the calls that are due soon."""

    def __init__(self):
        self.now = 1_000_000
        self.soon = []
        # How long another process keeps the processor when it is given away.
        self.wanted_ns = 0
        self.poll = BusyPoll(FOR_NS, self.soon.append, lambda: self.now, self.give_way)

    def give_way(self):
        self.now += self.wanted_ns

    def turn(self, takes=10):
        """One round of the loop."""
        self.now += takes
        due, self.soon[:] = list(self.soon), []
        for call in due:
            call()

    @property
    def looking(self):
        return bool(self.soon)

    def answer(self):
        self.poll.answered()

    def hear(self):
        self.poll.heard(self.now)

    def look_in_vain(self):
        """Answer a client that does not come back in time; returns whether polling followed the answer."""
        self.answer()
        looked = self.looking
        self.now += 10 * FOR_NS
        self.turn()
        return looked


@pytest.fixture
def loop():
    return Loop()


def test_loop_goes_on_for_moment_behind_answer(loop):
    loop.answer()

    rounds = 0
    while loop.looking:
        loop.turn()
        rounds += 1
    assert rounds == FOR_NS // 10


def test_busy_poll_begins_again_with_each_answer(loop):
    loop.answer()
    for _ in range(20):
        loop.turn()
        loop.hear()
        loop.answer()
        assert len(loop.soon) == 1


def test_busy_poll_yields_processor_to_another_process(loop):
    loop.wanted_ns = 100_000
    loop.answer()
    loop.turn()
    assert not loop.looking

    loop.wanted_ns = 0
    loop.answer()
    loop.turn()

    assert loop.looking


def test_busy_poll_yields_ever_more_rarely_on_processor_that_others_keep(loop):
    loop.wanted_ns = 3_000_000
    looks = []
    for _ in range(2000):
        loop.answer()
        looks.append(loop.looking)
        loop.turn()
        # The client came while the processor was away, and is answered as soon as the processor is back.
        loop.hear()

    given = [at for at, looked in enumerate(looks) if looked]
    pauses = [later - earlier for earlier, later in itertools.pairwise(given)]
    assert pauses[:8] == [2, 4, 8, 16, 32, 64, 128, 256]
    assert set(pauses[8:]) == {256}


def test_busy_poll_resumes_when_processor_is_free(loop):
    loop.wanted_ns = 3_000_000
    for _ in range(300):
        loop.answer()
        loop.turn()
    loop.wanted_ns = 0

    while not loop.looking:
        loop.answer()
    loop.turn()
    loop.hear()
    loop.answer()
    loop.turn(10 * FOR_NS)

    loop.answer()
    loop.hear()
    loop.answer()
    assert loop.looking


def test_busy_poll_in_vain_becomes_rare(loop):
    looks = [loop.look_in_vain() for _ in range(2000)]

    first = [at for at, looked in enumerate(looks) if looked]
    pauses = [later - earlier for earlier, later in itertools.pairwise(first)]
    assert pauses[:8] == [2, 4, 8, 16, 32, 64, 128, 256]
    assert set(pauses[8:]) == {256}


def test_busy_poll_follows_each_answer_once_it_pays_again(loop):
    for _ in range(300):
        loop.look_in_vain()

    while not loop.looking:
        loop.answer()
    loop.turn()
    loop.hear()

    while loop.looking:
        loop.now += FOR_NS
        loop.turn()
    assert [loop.look_in_vain() for _ in range(3)] == [False, True, False]


def test_client_that_comes_late_does_not_count_as_success(loop):
    looks = []
    for _ in range(100):
        looks.append(loop.look_in_vain())
        loop.hear()

    assert sum(looks) < 8


def test_busy_poll_is_off_without_time():
    calls = []
    poll = BusyPoll(0, calls.append, lambda: 0)

    poll.answered()
    poll.heard(0)

    assert calls == []
