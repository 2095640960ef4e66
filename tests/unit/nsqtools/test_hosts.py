"""Which destination gets the next message."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtools.hosts import EpsilonGreedy, HostPool, ResponseTimes, RoundRobin, chooser


def picks(pool, count: int, now: float = 0) -> list[str]:
    return [pool.pick(now) for _ in range(count)]


def test_round_robin_starts_with_second():
    assert picks(RoundRobin("abc"), 5) == ["b", "c", "a", "b", "c"]


def test_round_robin_continues_with_host_that_failed():
    pool = RoundRobin("ab")
    pool.failed("b", 0)

    assert picks(pool, 2) == ["b", "a"]


def test_pool_takes_all_hosts_in_turn():
    assert picks(HostPool("abc"), 4) == ["a", "b", "c", "a"]


def test_host_that_failed_rests_30_seconds():
    pool = HostPool("ab")
    pool.failed("a", 0)

    assert set(picks(pool, 4, now=30)) == {"b"}
    assert "a" in picks(pool, 2, now=30.1)


def test_host_that_is_tried_again_gets_one_message_and_twice_the_rest():
    pool = HostPool("ab")
    pool.failed("a", 0)

    assert Counter(picks(pool, 10, now=31))["a"] == 1
    assert "a" not in picks(pool, 4, now=31 + 60)
    assert "a" in picks(pool, 4, now=31 + 60.1)


def test_rest_is_never_longer_than_15_minutes():
    pool, now = HostPool("ab"), 0.0
    pool.failed("a", now)
    for _ in range(12):
        now += 901
        assert "a" in picks(pool, 2, now)


def test_success_brings_host_back():
    pool = HostPool("ab")
    pool.failed("a", 0)
    pool.succeeded("a", 0.1, 1)

    assert set(picks(pool, 4, now=1)) == {"a", "b"}


def test_dead_hosts_are_all_revived_and_first_is_used():
    pool = HostPool("abc")
    for host in "abc":
        pool.failed(host, 0)

    assert picks(pool, 3, now=1) == ["a", "a", "b"]


def test_quick_host_gets_most_of_messages():
    pool = EpsilonGreedy("ab", random.Random(1).random)
    counts: Counter[str] = Counter()
    for turn in range(2000):
        host = pool.pick(turn / 100)
        pool.succeeded(host, 0.01 if host == "a" else 0.1, turn / 100)
        counts[host] += 1

    # By weight *a* gets ten of eleven messages; exploring lowers that a little.
    assert 0.8 < counts["a"] / 2000 < 0.95


def test_slow_host_is_found_out_by_exploring():
    pool = EpsilonGreedy("ab", random.Random(1).random)

    assert set(picks(pool, 50)) == {"a", "b"}


def test_dead_host_gets_nothing_however_quick_it_was():
    pool = EpsilonGreedy("ab", random.Random(1).random)
    pool.succeeded("a", 0.001, 0)
    pool.succeeded("b", 1, 0)
    pool.failed("a", 0)

    assert set(picks(pool, 100, now=1)) == {"b"}


def test_recent_times_weigh_more():
    times = ResponseTimes()
    times.add(1, 0)
    times.add(3, 250)

    assert 2 < times.mean(250) < 3


def test_times_older_than_five_minutes_are_forgotten():
    times = ResponseTimes()
    times.add(1, 0)

    assert (times.mean(299), times.mean(301)) == (1, 0)


@given(
    st.sampled_from(["hostpool", "round-robin", "epsilon-greedy"]),
    st.integers(1, 4),
    st.lists(st.tuples(st.floats(0, 1000), st.booleans(), st.floats(0, 60))),
)
def test_pool_always_has_host_to_try(mode, hosts, story):
    names = [f"h{number}" for number in range(hosts)]
    pool, now = chooser(mode, names, random.Random(0).random), 0.0

    for passed, good, seconds in story:
        now += passed
        host = pool.pick(now)
        assert host in names
        if good:
            pool.succeeded(host, seconds, now)
        else:
            pool.failed(host, now)


@pytest.mark.parametrize("mode", ["hostpool", "epsilon-greedy"])
def test_live_host_is_preferred_to_one_that_just_failed(mode):
    pool = chooser(mode, ["dead", "live"], random.Random(0).random)
    pool.failed("dead", 0)

    assert set(picks(pool, 100, now=1)) == {"live"}
