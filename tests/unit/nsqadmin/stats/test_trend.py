import pytest

from nsqadmin.stats.sums import add_up
from nsqadmin.stats.trend import MAX_AGE_NS, NodePace
from tests.support.records import channel_json, topic_stats

SECOND = 1_000_000_000


def trends(stats, samples, at_ns):
    """Return the trends of a topic on one node, and of its channels."""
    found = add_up(stats.topic_name, [(stats, samples, at_ns, "a:1")])
    return found.trend, [one.trend for one in found.channels]


def look(pace, now_s, *, channels=("billing",), **fields):
    """Add one node's statistics; return the trends of the topic and its first channel."""
    stats = topic_stats(
        "orders", *(channel_json(name, **fields) for name in channels), message_count=fields["message_count"]
    )
    at_ns = int(now_s * SECOND)
    topic, of_channels = trends(stats, pace.note([stats], at_ns), at_ns)
    return topic, of_channels[0]


def test_single_poll_gives_no_rate():
    assert look(NodePace(), 0, message_count=100) == (None, None)


def test_polls_give_messages_in_and_out_per_second():
    pace = NodePace()
    look(pace, 0, message_count=100, depth=10, in_flight_count=5)
    _, trend = look(pace, 2, message_count=300, depth=30, in_flight_count=5)

    # 200 came in 2 s and 20 of them still wait, so 180 were finished: 100 and 90 per second.
    assert (trend.messages, trend.finished, trend.depth, trend.span_s) == (100, 90, 10, 2)


def test_rate_follows_the_last_ten_to_fifteen_seconds():
    pace = NodePace()
    for second in range(30):
        look(pace, second, message_count=second * 1000 if second < 15 else 15_000)
    topic, _ = look(pace, 30, message_count=15_000)

    assert topic.messages == 0
    assert 10 <= topic.span_s <= 15


def test_topic_that_was_made_again_counts_from_zero():
    pace = NodePace()
    look(pace, 0, message_count=1000)
    look(pace, 2, message_count=2000)

    # 30 messages since the topic was created again. That was after the first look, so they took at most 4 s.
    assert look(pace, 4, message_count=30)[0].messages == 7.5


def test_restarted_nsqd_has_no_rate_until_second_poll():
    pace = NodePace()
    stats = topic_stats("orders", channel_json("billing", message_count=50), message_count=50)
    pace.note([stats], 0, 100)
    samples = pace.note([stats], 2 * SECOND, 200)

    assert trends(stats, samples, 2 * SECOND) == (None, [None])
    samples = pace.note([stats], 4 * SECOND, 200)
    assert trends(stats, samples, 4 * SECOND)[0].messages == 0


def test_channel_that_comes_or_goes_leaves_rates_of_the_others():
    pace = NodePace()
    look(pace, 0, message_count=100, channels=("audit", "billing"))

    topic, first = look(pace, 5, message_count=300, channels=("billing", "new"))
    assert (topic.messages, first.messages) == (40, 40)
    topic, first = look(pace, 6, message_count=340, channels=("audit", "billing"))
    assert (topic.messages, first.messages) == (40, 40)


def test_new_channel_and_new_topic_count_from_zero():
    pace = NodePace()
    pace.note([], 0)
    stats = topic_stats("orders", channel_json("billing", message_count=50), message_count=50)

    topic, (channel,) = trends(stats, pace.note([stats], 5 * SECOND), 5 * SECOND)

    assert (topic.messages, channel.messages, channel.finished) == (10, 10, 10)


def test_emptied_queue_counts_as_gone_and_never_as_negative():
    pace = NodePace()
    look(pace, 0, message_count=100, depth=0, deferred_count=0)
    _, trend = look(pace, 1, message_count=100, depth=50)

    assert trend.finished == 0


def test_look_from_long_ago_gives_no_rate():
    pace = NodePace()
    look(pace, 0, message_count=100)

    assert look(pace, MAX_AGE_NS / SECOND + 1, message_count=200) == (None, None)


def test_slow_rhythm_gives_average_since_look_before():
    pace = NodePace()
    look(pace, 0, message_count=100)
    topic, _ = look(pace, 100, message_count=1100)

    assert topic.messages == pytest.approx(10)


def test_hundred_looks_a_second_keep_no_more_than_a_window():
    pace = NodePace()
    for hundredth in range(4000):
        look(pace, hundredth / 100, message_count=hundredth)

    assert len(pace._history) <= 4


def test_time_outs_are_rate_too():
    pace = NodePace()
    look(pace, 0, message_count=0, timeout_count=1)
    _, trend = look(pace, 2, message_count=0, timeout_count=5)

    assert trend.timeouts == 2


def test_counts_that_are_too_large_together_are_compared_as_far_as_they_go():
    pace = NodePace()
    most = 2**63 - 1
    look(pace, 0, message_count=0, depth=most, in_flight_count=most, deferred_count=most)
    look(pace, 5, message_count=0, depth=-most, in_flight_count=-most, deferred_count=-most)
    _, trend = look(pace, 10, message_count=0)

    assert trend.finished == pytest.approx(most / 10)
