"""The back-off machine against a plain statement of its promises."""

from hypothesis import given
from hypothesis import strategies as st

from nsqclient._backoff import Backoff, Phase

tail_records = st.lists(st.sampled_from(["fail", "succeed", "put off", "wait"]), max_size=80)


@given(tail_records, st.floats(0.01, 10), st.floats(0.01, 300), st.floats(0, 1), st.booleans())
def test_every_pause_is_power_of_two_within_limit(what, multiplier, longest, chance, full_jitter):
    backoff = Backoff(multiplier, longest, full_jitter=full_jitter)
    for one in what:
        before, level = backoff.phase, backoff.level
        if one == "wait":
            backoff.waited()
            assert backoff.phase is (Phase.TRIAL if before is Phase.STOPPED else before)
            assert backoff.level == level
            continue
        if one == "fail":
            pause = backoff.failed(chance)
        elif one == "succeed":
            pause = backoff.succeeded(chance)
        else:
            pause = backoff.continued(chance)

        if before is Phase.STOPPED:  # failures of messages that were taken before the stop do not count again
            assert (pause, backoff.phase, backoff.level) == (None, before, level)
        if pause is not None:
            full = min(multiplier * 2**backoff.level, longest)
            assert backoff.phase is Phase.STOPPED
            assert pause == (full * chance if full_jitter else full)
        assert (backoff.phase is Phase.RUNNING) == (backoff.level == 0)
        assert abs(backoff.level - level) <= 1
        # Above level 1 no level is entered whose pause would be cut: it would only lengthen the recovery.
        assert backoff.level <= 1 or multiplier * 2**backoff.level <= longest


@given(st.integers(1, 50), st.floats(0.1, 5), st.floats(0.1, 300))
def test_it_takes_no_more_successes_than_failures_to_run_again(failures, multiplier, longest):
    backoff = Backoff(multiplier, longest)
    for _ in range(failures):
        backoff.failed()
        backoff.waited()

    for _ in range(failures):
        backoff.succeeded()
        backoff.waited()

    assert backoff.phase is Phase.RUNNING


@given(st.integers(0, 20), st.sampled_from([(0, 120), (1, 0), (0, 0)]))
def test_without_multiplier_or_duration_nothing_ever_stops(failures, settings):
    backoff = Backoff(*settings)

    assert [backoff.failed() for _ in range(failures)] == [None] * failures
    assert backoff.phase is Phase.RUNNING


def test_what_is_put_off_repeats_trial_and_decides_nothing():
    backoff = Backoff()
    assert backoff.continued() is None

    backoff.failed()
    backoff.waited()

    assert (backoff.continued(), backoff.level, backoff.phase) == (2, 1, Phase.STOPPED)
