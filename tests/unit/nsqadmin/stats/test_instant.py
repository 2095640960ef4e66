import pytest

from nsqadmin.stats.instant import Instant

NOON = Instant(5 * 10**9, 1_800_000_000.0)


def test_duration_is_measured_by_monotonic_clock():
    set_back = Instant(NOON.at_ns + 2 * 10**9, NOON.at_s - 3600)

    assert set_back.since(NOON) == 2
    assert NOON.after(90).since(NOON) == 90
    assert NOON.after(-90).at_s == NOON.at_s - 90


def test_time_is_told_as_clock_says_after_it_was_set():
    now = Instant(NOON.at_ns + 60 * 10**9, NOON.at_s + 60 - 3600)

    assert now.reading(NOON) == Instant(NOON.at_ns, NOON.at_s - 3600)
    assert now.reading(NOON.after(100)) == Instant(NOON.at_ns + 100 * 10**9, NOON.at_s + 100 - 3600)


@pytest.mark.parametrize("difference", [-0.4, 0.0, 0.4])
def test_time_that_is_told_does_not_flicker(difference):
    now = Instant(NOON.at_ns + 60 * 10**9, NOON.at_s + 60 + difference)

    assert now.reading(NOON) is NOON
