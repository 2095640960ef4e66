"""Which errors of clients are logged."""

from nsqd.server.complaints import MOST, written


def test_errors_of_a_turn_are_logged_up_to_a_number_and_the_others_counted():
    errors = [ValueError(f"bad {n}") for n in range(MOST + 3)]

    assert list(written(errors[:2])) == ["bad 0", "bad 1"]
    assert list(written(errors)) == [*(f"bad {n}" for n in range(MOST)), "and 3 more"]


def test_what_no_log_can_hold_is_written_in_another_way():
    assert list(written([ValueError("\udcff")])) == ["\\udcff"]
