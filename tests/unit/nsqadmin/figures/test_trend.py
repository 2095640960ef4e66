import pytest

from nsqadmin.figures import aggregate
from nsqadmin.figures.trend import MAX_AGE_NS, TrendBook
from tests.support.records import channel_json, producer, topic_stats

SECOND = 1_000_000_000


def look(book, now_s, *, port=4151, **fields):
    """Observe one channel on one node and return its record."""
    stats = topic_stats("orders", channel_json("billing", **fields), message_count=fields["message_count"])
    record = aggregate.topic_on(producer(port), stats, 0)
    book.observe([record], int(now_s * SECOND))
    return record


def channel_of(*records):
    return aggregate.total_topic("orders", records).channels[0]


def test_one_look_gives_no_rate():
    book = TrendBook()

    record = look(book, 0, message_count=100)

    assert book.of(record) is None


def test_two_looks_give_messages_in_and_out_per_second():
    book = TrendBook()
    look(book, 0, message_count=100, depth=10, in_flight_count=5)
    record = look(book, 2, message_count=300, depth=30, in_flight_count=5)

    trend = book.of(channel_of(record))

    # 200 came in 2 s, 20 of them still wait, so 180 were finished.
    assert (trend.messages, trend.finished, trend.depth, trend.span_s) == (100, 90, 10, 2)


def test_the_rate_follows_the_last_ten_seconds():
    book = TrendBook()
    for second in range(30):
        look(book, second, message_count=second * 1000 if second < 15 else 15_000)
    record = look(book, 30, message_count=15_000)

    assert book.of(record).messages == 0


def test_rates_of_nodes_are_added_and_a_new_node_makes_no_jump():
    book = TrendBook()
    look(book, 0, message_count=100)
    first = look(book, 2, message_count=120)
    second = look(book, 2, port=4251, message_count=1_000_000)

    assert book.of(aggregate.total_topic("orders", [first, second])).messages == 10


def test_a_counter_that_starts_over_starts_the_trend_over():
    book = TrendBook()
    look(book, 0, message_count=1000)
    look(book, 2, message_count=2000)

    assert book.of(look(book, 4, message_count=3)) is None
    assert book.of(look(book, 6, message_count=23)).messages == 10


def test_many_viewers_at_once_do_not_crowd_out_the_window():
    book = TrendBook()
    look(book, 0, message_count=0)
    for hundredth in range(50):
        look(book, 1 + hundredth / 100, message_count=100)
    record = look(book, 2, message_count=200)

    assert book.of(record).messages == 100


def test_an_emptied_queue_counts_as_gone_and_never_as_negative():
    book = TrendBook()
    look(book, 0, message_count=100, depth=0, deferred_count=0)
    record = look(book, 1, message_count=100, depth=50)

    assert book.of(channel_of(record)).finished == 0


def test_a_look_from_long_ago_gives_no_rate():
    book = TrendBook()
    look(book, 0, message_count=100)
    record = look(book, MAX_AGE_NS / SECOND + 1, message_count=200)

    assert book.of(record) is None


def test_a_hand_reloaded_page_gets_the_average_since_its_last_look():
    book = TrendBook()
    look(book, 0, message_count=100)
    record = look(book, 100, message_count=1100)

    assert book.of(record).messages == pytest.approx(10)


def test_what_nobody_sees_any_more_is_forgotten():
    book = TrendBook()
    for port in range(4000, 4100):
        look(book, 0, port=port, message_count=1)
    look(book, 3 * MAX_AGE_NS / SECOND, message_count=1)

    assert len(book._samples) == 2


def test_time_outs_and_requeues_are_rates_too():
    book = TrendBook()
    look(book, 0, message_count=0, timeout_count=1, requeue_count=0)
    record = look(book, 2, message_count=0, timeout_count=5, requeue_count=1)

    trend = book.of(channel_of(record))

    assert (trend.timeouts, trend.requeues) == (2, 0.5)
