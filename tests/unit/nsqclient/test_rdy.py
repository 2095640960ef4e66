"""How a consumer shares its max_in_flight."""

import random

import pytest

from nsqclient._backoff import Phase
from nsqclient._rdy import RdyDistribution, longest_wait


def first(candidates):
    return candidates[0]


def last(candidates):
    return candidates[-1]


def distribution(max_in_flight: int, *keys: str) -> RdyDistribution[str]:
    rdy: RdyDistribution[str] = RdyDistribution(max_in_flight, low_rdy_idle_timeout=10, low_rdy_timeout=30)
    for key in keys:
        rdy.add(key, 2500, now=0)
    return rdy


@pytest.mark.parametrize(("heard", "until"), [(0, 10), (29, 30)], ids=["silent", "busy"])
def test_connection_passes_its_share_on_when_its_time_is_up(heard, until):
    rdy = distribution(1, "a", "b")
    holder, waiting = ("a", "b") if rdy.count("a") else ("b", "a")
    rdy.heard(holder, heard)

    assert rdy.rotate(until - 1, first) == {}
    assert rdy.rotate(until + 1, first) == {holder: 0, waiting: 1}


def test_connection_whose_message_is_being_handled_is_not_silent():
    rdy = distribution(1, "a", "b")

    assert rdy.rotate(11, first, {"a": 1}) == {}


def test_share_is_passed_on_only_when_its_message_is_answered():
    rdy = distribution(1, "a", "b")

    assert rdy.rotate(31, first, {"a": 1}) == {"a": 0}
    assert rdy.rotate(36, first, {"a": 1}) == {}
    assert rdy.rotate(41, first) == {"b": 1}


def test_connection_that_comes_or_goes_gets_no_share_that_is_passed_on():
    rdy = distribution(1, "a", "b", "c")
    rdy.rotate(31, first, {"a": 1})

    assert rdy.add("d", 2500, now=32) == {}
    assert rdy.remove("b", 33, first) == {}
    assert rdy.rotate(36, first, {"a": 1}) == {}


def test_connections_all_have_their_turn():
    rdy = distribution(1, "a", "b", "c")
    chance = random.Random(1)
    seen = set()

    for minute in range(1, 60):
        rdy.rotate(minute * 60, chance.choice)
        seen |= {key for key in "abc" if rdy.count(key)}

    assert seen == set("abc")


class Counted:
    """A key that counts how often it is hashed."""

    looks = 0

    def __hash__(self):
        Counted.looks += 1
        return id(self)


def test_connection_changes_have_linear_cost():
    rdy = RdyDistribution(10, low_rdy_idle_timeout=10, low_rdy_timeout=30)
    keys = [Counted() for _ in range(2_000)]
    Counted.looks = 0

    for key in keys:
        rdy.add(key, 2500, 0)
    rdy.rotate(1000, first)
    for key in keys[:1_000]:
        rdy.remove(key, 1001, first)

    # Each key was hashed a few times, not once for each key that was added.
    assert Counted.looks < 30 * len(keys)
    assert sum(rdy.count(key) for key in keys) == 10


def test_longest_wait_grows_with_connections_per_message():
    assert longest_wait(1000, 100, 10) == 90
    assert longest_wait(100, 100, 10) == 0
    assert longest_wait(5, 0, 10) == 0


def test_trial_of_lost_connection_moves_to_chosen_one():
    rdy = distribution(10, "a", "b", "c")
    rdy.enter(Phase.STOPPED, 1, first)
    rdy.enter(Phase.TRIAL, 2, last)

    assert rdy.remove("c", 3, first) == {"a": 1}


def test_trial_on_nsqd_without_messages_moves_on():
    rdy = distribution(10, "idle", "busy")
    rdy.enter(Phase.STOPPED, 1, first)
    rdy.enter(Phase.TRIAL, 3, lambda _: "idle")

    assert rdy.rotate(8, first) == {}
    assert rdy.rotate(14, first) == {"idle": 0, "busy": 1}


def test_long_trial_moves_on_only_after_its_outcome():
    rdy = distribution(1, "tried", "other")
    rdy.enter(Phase.STOPPED, 1, first)
    rdy.enter(Phase.TRIAL, 3, lambda _: "tried")

    assert rdy.rotate(14, first, {"tried": 1}) == {}
    assert rdy.rotate(34, first, {"tried": 1}) == {"tried": 0}
    assert rdy.rotate(39, first, {"tried": 1}) == {}


def test_earlier_messages_do_not_hold_trial():
    rdy = distribution(10, "a", "b", "c")
    rdy.enter(Phase.STOPPED, 1, first)
    rdy.enter(Phase.TRIAL, 3, lambda _: "a")

    assert rdy.rotate(14, first, {"c": 3}) == {"a": 0, "b": 1}


def test_connection_that_waited_longest_is_next():
    rdy = distribution(1, "a", "b", "c")
    order = []
    for minute in range(1, 7):
        rdy.rotate(minute * 60, last)
        order += [key for key in "abc" if rdy.count(key)]

    assert order[:3] == order[3:]
    assert sorted(order[:3]) == ["a", "b", "c"]
