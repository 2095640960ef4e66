"""How to_nsq keeps to a rate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtools.to_nsq.throttle import Throttle


def sent_at(rate: int, ready: list[float]) -> list[float]:
    """The times at which messages are sent that are ready at the times *ready*."""
    throttle, now, sent = Throttle(rate, 0.0), 0.0, []
    for moment in ready:
        now = max(now, moment)
        now += throttle.take(now)
        sent.append(now)
    return sent


def test_first_message_is_due_immediately_and_others_at_rate():
    assert sent_at(2, [0] * 4) == pytest.approx([0, 0.5, 1, 1.5])


def test_pause_saves_up_no_more_than_a_second():
    assert sent_at(2, [0, *[100] * 4]) == pytest.approx([0, 100, 100, 100.5, 101])


@given(st.integers(1, 1000), st.lists(st.floats(0, 10), max_size=200).map(sorted))
def test_seconds_have_at_most_twice_the_rate(rate, ready):
    sent = sent_at(rate, ready)

    for start in sent:
        assert sum(start <= moment < start + 0.999 for moment in sent) <= 2 * rate + 1
