"""How a consumer shares its max_in_flight."""

import random

from hypothesis import given
from hypothesis import strategies as st

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


KEYS = "abcde"
STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(KEYS), st.integers(1, 6)),
    st.tuples(st.just("remove"), st.sampled_from(KEYS)),
    st.tuples(st.just("enter"), st.sampled_from(Phase)),
    st.tuples(st.just("resize"), st.integers(0, 8)),
    st.tuples(st.just("rotate"), st.integers(0, 40)),
)


def expected(limits, max_in_flight, phase, counts):
    """Whether the counts are right for these connections: an even share, a turn for some, or one trial."""
    if phase is Phase.STOPPED or max_in_flight == 0 or not limits:
        return not any(counts)
    if phase is Phase.TRIAL:
        return sorted(counts) == [0] * (len(limits) - 1) + [1]
    if len(limits) <= max_in_flight:
        return counts == [min(max_in_flight // len(limits), limit) for limit in limits.values()]
    return sum(counts) == max_in_flight and set(counts) <= {0, 1}


@given(st.integers(0, 8), st.lists(STEPS, max_size=30), st.randoms(use_true_random=False))
def test_rdy_sent_is_share_of_max_in_flight(max_in_flight, steps, chance):
    rdy = distribution(max_in_flight)
    limits: dict[str, int] = {}
    sent: dict[str, int] = {}
    phase, now = Phase.RUNNING, 0
    for kind, *arguments in steps:
        if kind == "add" and arguments[0] not in limits:
            limits[arguments[0]], sent[arguments[0]] = arguments[1], 0
            changes = rdy.add(*arguments, now)
        elif kind == "remove":
            limits.pop(arguments[0], None)
            sent.pop(arguments[0], None)
            changes = rdy.remove(arguments[0], now, chance.choice)
        elif kind == "enter":
            [phase] = arguments
            changes = rdy.enter(phase, now, chance.choice)
        elif kind == "resize":
            [max_in_flight] = arguments
            changes = rdy.resize(max_in_flight, now)
        else:
            now += arguments[-1]
            changes = rdy.rotate(now, chance.choice)
        most = max(max_in_flight, sum(sent.values()))
        for key, count in changes.items():
            assert count != sent[key]  # only changes are sent
            sent[key] = count
            assert sum(sent.values()) <= most  # others are lowered first
        assert expected(limits, max_in_flight, phase, [sent[key] for key in limits]), (kind, arguments, sent)


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
