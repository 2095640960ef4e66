import random

import pytest

from nsqd.engine.deferred import STEP, Deferred

MILLISECOND = 1_000_000
SECOND = 1_000_000_000
# The owner is woken for the last message of each tick of 2**20 ns.
TICK = 1 << 20


@pytest.fixture
def deferred():
    return Deferred()


def taken(deferred, now_ns):
    return [seq for start, end in deferred.take_due(now_ns) for seq in range(start, end)]


def test_messages_deferred_together_are_one_run(deferred):
    for seq in range(100):
        deferred.add(seq, seq + 1, SECOND)

    assert list(deferred.runs()) == [(SECOND, 0, 100)]
    assert deferred.count == 100


def test_whoever_comes_when_told_to_finds_everything_in_time(deferred):
    rng = random.Random(2)
    dues = [rng.randrange(1, SECOND) for _ in range(500)]
    for seq, due_ns in enumerate(dues):
        deferred.add(seq, seq + 1, due_ns)
    now_ns, waits = 0, []
    while deferred.count:
        now_ns = max(now_ns, deferred.next_due_ns())
        waits += [now_ns - dues[seq] for seq in taken(deferred, now_ns)]

    assert len(waits) == 500
    assert 0 <= min(waits) <= max(waits) < TICK


def test_very_many_that_are_due_at_once_are_taken_in_steps(deferred):
    count = 3 * STEP + 7
    for number in range(count):
        deferred.add(2 * number, 2 * number + 1, SECOND)
    steps = []
    while deferred.count:
        assert deferred.next_due_ns() <= SECOND
        steps.append([start for start, _ in deferred.take_due(SECOND)])

    assert max(map(len, steps)) == STEP
    assert [start for step in steps for start in step] == list(range(0, 2 * count, 2))


def test_removal_of_one_deferred_message_copies_only_its_slot(deferred):
    for seq in range(20_000):
        deferred.add(seq, seq + 1, SECOND + seq * MILLISECOND)
    before = deferred.snapshot()

    assert deferred.remove([(12_345, 12_346)]) == 1

    after = deferred.snapshot()
    assert len(before) > 250
    assert sum(now is not then for now, then in zip(after[-250:], before[-250:], strict=True)) == 1
    assert deferred.count == 19_999
    assert deferred.remove([(12_345, 12_346)]) == 0


def test_message_deferred_while_others_are_taken_is_kept(deferred):
    for number in range(2 * STEP):
        deferred.add(2 * number, 2 * number + 1, SECOND)
    deferred.take_due(SECOND)
    deferred.add(1, 2, SECOND - 5)
    deferred.add(3, 4, SECOND + MILLISECOND)

    remaining = [seq for _ in range(4) for seq in taken(deferred, SECOND + 2 * MILLISECOND)]
    assert {1, 3} < set(remaining)
    assert len(remaining) == STEP + 2
    assert not deferred.count


def test_time_that_is_long_past_is_due_at_once(deferred):
    deferred.take_due(9 * SECOND)
    deferred.add(4, 6, -1)
    deferred.add(7, 8, 0)

    assert sorted(taken(deferred, 9 * SECOND)) == [4, 5, 7]
