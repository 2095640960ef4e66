import pytest

from nsqadmin.stats.activity import MAX_CONSUMERS, UNKNOWN, ActivityTracker

WHO = ("a:1", "10.0.0.1:5", "orders", "billing")


@pytest.mark.parametrize(
    ("polls", "rate", "silent_s"),
    [
        ([(100, 0.0), (120, 2.0)], 10, 0),
        ([(100, 0.0), (120, 2.0), (120, 10.0), (120, 32.0)], 0, 30),
        # A poll in short succession makes no rate of its own.
        ([(100, 0.0), (120, 2.0), (125, 2.5)], 10, 0),
    ],
)
def test_activity_is_rate_and_silence_since_earlier_polls(polls, rate, silent_s):
    book = ActivityTracker()
    found = [book.note(WHO, *poll) for poll in polls]

    assert found[0] == UNKNOWN
    assert (found[-1].rate, found[-1].silent_s) == (rate, silent_s)


def test_count_that_starts_over_is_another_consumer():
    book = ActivityTracker()
    book.note(WHO, 100, 0.0)
    book.note(WHO, 120, 2.0)

    assert book.note(WHO, 3, 4.0) == UNKNOWN


def test_not_more_consumers_are_remembered_than_are_looked_at():
    book = ActivityTracker()
    for number in range(MAX_CONSUMERS + 10):
        book.note((str(number),), 0, 0.0)

    assert len(book._samples) == MAX_CONSUMERS
