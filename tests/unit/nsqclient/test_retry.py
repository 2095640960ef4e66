"""The delays between attempts."""

from datetime import timedelta

import pytest

from nsqclient import Exponential, Fixed, Linear, Retry


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [
        (Exponential(1, 600), [1, 2, 4, 8, 16]),
        (Exponential(1, 5), [1, 2, 4, 5, 5]),
        (Exponential(timedelta(seconds=1), timedelta(minutes=1), factor=10), [1, 10, 60, 60, 60]),
        (Linear(90, 200), [90, 180, 200, 200, 200]),
        (Fixed(timedelta(milliseconds=500)), [0.5, 0.5, 0.5, 0.5, 0.5]),
    ],
)
def test_delay_follows_from_number_of_attempts(delay, seconds):
    assert [delay(attempts) for attempts in range(1, 6)] == seconds


def test_jitter_shortens_delay_by_its_share_at_most():
    delays = {Exponential(10, 600, jitter=0.5)(3) for _ in range(200)}

    assert all(20 <= seconds <= 40 for seconds in delays)
    assert len(delays) > 100


def test_message_delivered_for_weeks_has_delay_all_the_same():
    assert Exponential(1, 600)(65535) == 600


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: Retry(max_attempts=-1),
        lambda: Retry(max_attempts=70_000),
        lambda: Retry(then="forget"),
        lambda: Retry(5, then="discard", dead_letter_topic="dead"),
        lambda: Retry(5, dead_letter_topic="not a name"),
        lambda: Retry(delay=Fixed(-1)),
        lambda: Retry(delay=lambda _: -5),
        lambda: Exponential(1, 600, factor=0.5),
        lambda: Exponential(1, 600, jitter=2),
    ],
)
def test_policy_that_makes_no_sense_is_refused(mistake):
    with pytest.raises(ValueError, match=r"out of range|negative|factor|neither|dead_letter"):
        mistake()


def test_retry_gives_up_only_when_it_is_told_to():
    assert Retry().max_attempts == 0
    assert Retry().dead_letters_of("t", "c") == ""


@pytest.mark.parametrize(
    ("retry", "topic"),
    [
        (Retry(5), "t.c.dead"),
        (Retry(5, dead_letter_topic="dead"), "dead"),
        (Retry(dead_letter_topic="dead"), "dead"),
        (Retry(5, then="discard"), ""),
        (Retry(5, then=print), ""),
    ],
)
def test_retry_names_topic_of_dead_letters(retry, topic):
    assert retry.dead_letters_of("t", "c") == topic
