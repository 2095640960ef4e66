"""When requests are due."""

import itertools

import pytest

from load.pacing import Schedule, Stage


def due(pace, count):
    return list(itertools.islice(iter(pace.next, None), count))


def test_requests_are_due_evenly():
    assert due(Schedule(10), 4) == pytest.approx([0, 0.1, 0.2, 0.3])


def test_stage_multiplies_rate_while_it_lasts_and_the_last_one_stays():
    pace = Schedule(10, [Stage(1, 1), Stage(1, 5), Stage(1, 0.5)])

    times = due(pace, 80)

    assert [sum(start <= at < start + 1 for at in times) for start in range(4)] == [10, 50, 5, 5]


def test_stage_without_requests_is_waited_out():
    assert due(Schedule(2, [Stage(5, 0), Stage(1, 1)]), 2) == pytest.approx([5.0, 5.5])


def test_offset_keeps_users_apart():
    assert due(Schedule(10, offset=0.5), 2) == pytest.approx([0.05, 0.15])
