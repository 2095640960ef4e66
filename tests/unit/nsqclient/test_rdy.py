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


def counts(rdy: RdyDistribution[str], keys: str) -> list[int]:
    return [rdy.count(key) for key in keys]


def test_first_connection_gets_all():
    assert distribution(10).add("a", 2500, now=0) == {"a": 10}


def test_rdy_is_lowered_before_new_connection_gets_its_share():
    changes = distribution(10, "a").add("b", 2500, now=1)

    assert changes == {"a": 5, "b": 5}
    assert list(changes.values()) == sorted(changes.values())


def test_large_share_is_lowered_before_small_one_is_raised():
    rdy = distribution(9, "a")

    assert list(rdy.add("b", 3, now=0).items()) == [("a", 4), ("b", 3)]


def test_rdy_is_zero_everywhere_before_trial():
    rdy = distribution(10, "a", "b")

    assert list(rdy.enter(Phase.TRIAL, 2, first).items())[-1] == ("b", 0)
    rdy = distribution(2, "a", "b", "c")
    assert list(rdy.enter(Phase.TRIAL, 2, last).values()) == [0, 0, 1]


def test_share_is_limited_by_max_rdy_count():
    assert distribution(100).add("a", 30, now=0) == {"a": 30}


def test_share_of_lost_connection_goes_to_others():
    rdy = distribution(10, "a", "b")

    assert rdy.remove("a", 1, first) == {"b": 10}
    assert rdy.count("a") == 0
    assert rdy.remove("a", 1, first) == {}


def test_unchanged_rdy_is_not_sent():
    rdy = distribution(10, "a", "b")

    assert rdy.resize(11, now=1) == {}


def test_more_connections_than_messages_leave_some_at_zero():
    assert sorted(counts(distribution(2, "a", "b", "c"), "abc")) == [0, 1, 1]


def test_silent_connection_passes_its_share_on():
    rdy = distribution(1, "a", "b")
    holder, waiting = ("a", "b") if rdy.count("a") else ("b", "a")

    assert rdy.rotate(9, first) == {}
    assert rdy.rotate(11, first) == {holder: 0, waiting: 1}


def test_busy_connection_passes_its_share_on_when_its_time_is_up():
    rdy = distribution(1, "a", "b")
    holder, waiting = ("a", "b") if rdy.count("a") else ("b", "a")
    rdy.heard(holder, 29)

    assert rdy.rotate(29, first) == {}
    assert rdy.rotate(31, first) == {holder: 0, waiting: 1}


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


def test_share_of_one_that_goes_is_passed_on():
    rdy = distribution(2, "a", "b", "c", "d")
    holders = [key for key in "abcd" if rdy.count(key)]

    (told,) = rdy.remove(holders[0], 1, first).values()

    assert told == 1
    assert sum(rdy.count(key) for key in "abcd") == 2


def test_longest_wait_grows_with_connections_per_message():
    assert longest_wait(1000, 100, 10) == 90
    assert longest_wait(100, 100, 10) == 0
    assert longest_wait(5, 0, 10) == 0


def test_rotation_needs_more_connections_than_messages():
    assert distribution(2, "a", "b").rotate(1000, first) == {}


def test_stop_sets_rdy_to_zero_also_for_new_connection():
    rdy = distribution(10, "a", "b")

    assert rdy.enter(Phase.STOPPED, 1, first) == {"a": 0, "b": 0}
    assert rdy.add("c", 2500, now=2) == {}


def test_trial_is_one_message_on_one_connection():
    rdy = distribution(10, "a", "b")
    rdy.enter(Phase.STOPPED, 1, first)

    assert rdy.enter(Phase.TRIAL, 2, last) == {"b": 1}
    assert rdy.enter(Phase.RUNNING, 3, first) == {"a": 5, "b": 5}


def test_trial_of_lost_connection_moves_to_chosen_one():
    rdy = distribution(10, "a", "b", "c")
    rdy.enter(Phase.STOPPED, 1, first)
    rdy.enter(Phase.TRIAL, 2, last)

    assert rdy.remove("c", 3, first) == {"a": 1}


def test_trial_without_connections_waits_for_the_next_one():
    rdy = distribution(10)
    rdy.enter(Phase.TRIAL, 1, first)

    assert rdy.add("a", 2500, now=2) == {"a": 1}
    assert rdy.add("b", 2500, now=3) == {}


def test_resize_to_zero_pauses_and_back_runs():
    rdy = distribution(10, "a", "b")

    assert rdy.resize(0, now=1) == {"a": 0, "b": 0}
    assert rdy.rotate(1000, first) == {}
    assert rdy.resize(4, now=2) == {"a": 2, "b": 2}


@pytest.mark.parametrize("phase", [Phase.STOPPED, Phase.TRIAL, Phase.RUNNING])
def test_consumer_without_connections_sends_no_rdy(phase):
    assert distribution(10).enter(phase, 1, first) == {}


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
