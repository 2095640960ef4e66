from nsqadmin.stats.activity import MAX_CONSUMERS, UNKNOWN, ActivityTracker

WHO = ("a:1", "10.0.0.1:5", "orders", "billing")


def test_activity_is_unknown_until_second_poll():
    book = ActivityTracker()

    assert book.note(WHO, 100, 0.0) == UNKNOWN
    activity = book.note(WHO, 120, 2.0)

    assert (activity.rate, activity.silent_s) == (10, 0)


def test_consumer_is_silent_since_last_finished_message():
    book = ActivityTracker()
    book.note(WHO, 100, 0.0)
    book.note(WHO, 120, 2.0)
    book.note(WHO, 120, 10.0)

    activity = book.note(WHO, 120, 32.0)

    assert (activity.rate, activity.silent_s) == (0, 30)


def test_polls_in_short_succession_make_no_rate():
    book = ActivityTracker()
    book.note(WHO, 100, 0.0)
    book.note(WHO, 120, 2.0)

    assert book.note(WHO, 125, 2.5).rate == 10


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
