"""The back-off machine."""

import pytest

from nsqclient._backoff import Backoff, Phase


@pytest.fixture
def backoff() -> Backoff:
    return Backoff(multiplier=1, max_duration=120)


def fail_on_trial(backoff: Backoff) -> float | None:
    backoff.waited()
    return backoff.failed()


def test_first_failure_stops_for_two_multipliers(backoff):
    assert backoff.failed() == 2
    assert (backoff.phase, backoff.level) == (Phase.STOPPED, 1)


def test_failed_trial_doubles_stop(backoff):
    assert [backoff.failed()] + [fail_on_trial(backoff) for _ in range(4)] == [2, 4, 8, 16, 32]


def test_stop_never_grows_above_longest(backoff):
    backoff.failed()

    stops = [fail_on_trial(backoff) for _ in range(20)]

    assert max(stops) == stops[-1] == 64  # the next level would be 128
    assert backoff.level == 6


def test_multiplier_above_longest_stop_is_cut_to_it():
    assert Backoff(multiplier=300, max_duration=120).failed() == 120


def test_failures_of_messages_taken_before_stop_do_not_count_again(backoff):
    backoff.failed()

    assert backoff.failed() is None
    assert backoff.succeeded() is None
    assert (backoff.phase, backoff.level) == (Phase.STOPPED, 1)


def test_successful_trial_at_level_one_runs_again(backoff):
    backoff.failed()
    backoff.waited()

    assert backoff.succeeded() is None
    assert (backoff.phase, backoff.level) == (Phase.RUNNING, 0)


def test_recovery_takes_one_successful_trial_per_level(backoff):
    backoff.failed()
    fail_on_trial(backoff)
    backoff.waited()

    assert backoff.succeeded() == 2
    assert (backoff.phase, backoff.level) == (Phase.STOPPED, 1)


def test_success_while_running_changes_nothing(backoff):
    assert backoff.succeeded() is None
    assert (backoff.phase, backoff.level) == (Phase.RUNNING, 0)


def test_full_jitter_stops_for_chance_of_time():
    assert Backoff(multiplier=1, max_duration=120, full_jitter=True).failed(chance=0.25) == 0.5


@pytest.mark.parametrize("off", [{"max_duration": 0}, {"multiplier": 0}])
def test_zero_switches_it_off(off):
    backoff = Backoff(**off)

    assert backoff.failed() is None
    assert backoff.phase is Phase.RUNNING
