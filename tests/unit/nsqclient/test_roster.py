"""Which nsqd a producer publishes to."""

from nsqclient._addresses import MAX_BACKOFF_SECONDS, Roster


def test_first_address_is_used_as_long_as_it_is_well():
    roster = Roster(["a", "b"])

    assert [roster.pick(now) for now in (0, 1, 2)] == ["a", "a", "a"]


def test_address_after_failed_one_is_used_and_kept():
    roster = Roster(["a", "b", "c"])
    roster.pick(0)
    roster.failed("a", 0)

    assert roster.pick(0) == "b"
    assert roster.pick(1000) == "b"


def test_address_whose_rest_ends_first_is_tried_when_all_rest():
    roster = Roster(["a", "b"])
    roster.failed("b", 0)
    roster.failed("a", 0.05)

    assert roster.pick(0.06) == "b"


def test_single_address_is_used_while_it_rests():
    roster = Roster(["a"])
    roster.failed("a", 0)

    assert roster.pick(0) == "a"


def test_rest_doubles_with_each_failure_up_to_limit():
    roster = Roster(["a"])
    now, rests = 0.0, []
    for _ in range(12):
        roster.failed("a", now)
        began = now
        while not roster.is_well("a", now):
            now += 0.05
        rests.append(round(now - began, 1))

    assert rests[:4] == [0.1, 0.2, 0.4, 0.8]
    assert rests[-1] == MAX_BACKOFF_SECONDS


def test_failures_during_rest_count_once():
    roster = Roster(["a", "b"])
    for _ in range(100):
        roster.failed("a", 0)

    assert roster.is_well("a", 0.11)


def test_success_forgets_failures():
    roster = Roster(["a", "b"])
    roster.failed("a", 0)
    roster.succeeded("a")

    assert roster.is_well("a", 0)
    roster.failed("a", 1)
    assert roster.is_well("a", 1.11)


def test_failure_after_long_time_without_one_rests_briefly():
    roster = Roster(["a"])
    roster.failed("a", 0)
    roster.failed("a", 1)
    roster.failed("a", 1 + 2 * MAX_BACKOFF_SECONDS)

    assert roster.rests_until("a") == 1.1 + 2 * MAX_BACKOFF_SECONDS


def test_update_keeps_what_is_known_of_those_that_stay():
    roster = Roster(["a", "b"])
    roster.pick(0)
    roster.failed("b", 0)

    roster.update(["b", "c"])

    assert roster.addresses == ["b", "c"]
    assert not roster.is_well("b", 0)
    assert roster.pick(0) == "c"
    roster.update([])
    assert (roster.pick(0), roster.current) == (None, None)


def test_failures_of_strangers_are_ignored():
    roster = Roster(["a"])
    roster.failed("x", 0)
    roster.succeeded("x")

    assert "x" not in roster
    assert not roster.is_well("x", 0)


def test_rest_after_end_backoff_is_longer():
    roster = Roster(["a", "b"])
    roster.failed("a", 0)
    roster.end_backoff()

    assert roster.is_well("a", 0)

    roster.failed("a", 0)
    assert roster.is_well("a", 0.15) is False
    assert roster.is_well("a", 0.21)
