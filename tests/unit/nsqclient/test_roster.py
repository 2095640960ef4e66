"""Which nsqd a client uses, and how long one that failed rests."""

import pytest

from nsqclient._addresses import MAX_BACKOFF_SECONDS, Roster

# rule -> (addresses, failures with their times, times of picks, picked addresses)
PICKS = {
    "first address is used while it is available": ("ab", [], [0, 1, 2], "aaa"),
    "address behind a failed one is used, and kept": ("abc", [("a", 0)], [0, 1000], "bb"),
    "address whose rest ends first is used when all rest": ("ab", [("b", 0), ("a", 0.05)], [0.06], "b"),
    "single address is used while it rests": ("a", [("a", 0)], [0], "a"),
}


@pytest.mark.parametrize("rule", PICKS)
def test_address_is_picked_by_rule(rule):
    addresses, failures, times, picked = PICKS[rule]
    roster = Roster(addresses)
    roster.pick(0)
    for failure in failures:
        roster.failed(*failure)

    assert [roster.pick(now) for now in times] == list(picked)


def test_rest_doubles_with_each_failure_up_to_limit():
    roster = Roster("a")
    now, rests = 0.0, []
    for _ in range(12):
        for _ in range(2):  # failures during a rest count once
            roster.failed("a", now)
        rests.append(round(roster.available_at("a") - now, 1))
        now = roster.available_at("a")

    assert rests[:4] == [0.1, 0.2, 0.4, 0.8]
    assert rests[-1] == MAX_BACKOFF_SECONDS


def test_rest_begins_anew_after_success_or_long_time():
    roster = Roster("a")
    roster.failed("a", 0)
    roster.succeeded("a")
    assert roster.is_available("a", 0)

    for now in (1, 2 + MAX_BACKOFF_SECONDS):
        roster.failed("a", now)
        assert roster.available_at("a") == now + 0.1


def test_rest_after_end_backoff_is_longer():
    roster = Roster("a")
    roster.failed("a", 0)
    roster.end_backoff()
    assert roster.is_available("a", 0)

    roster.failed("a", 0)
    assert roster.available_at("a") == 0.2


def test_update_keeps_rests_of_addresses_that_stay():
    roster = Roster("ab")
    roster.pick(0)
    roster.failed("b", 0)

    roster.update("bc")

    assert roster.addresses == ["b", "c"]
    assert not roster.is_available("b", 0)
    assert roster.pick(0) == "c"
    roster.update([])
    assert (roster.pick(0), roster.current) == (None, None)
    roster.failed("b", 0)
    roster.succeeded("b")
    assert not roster.is_available("b", 0)
