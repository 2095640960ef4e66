from nsqadmin.figures import aggregate, attention
from nsqadmin.figures.attention import Level
from nsqadmin.figures.trend import Trend
from tests.support.records import channel_json, producer, topic_stats


def channel(**fields):
    record = aggregate.topic_on(producer(), topic_stats("orders", channel_json("audit", **fields)), 0)
    return aggregate.total_topic("orders", [record]).channels[0]


def of_topic(depth, *, paused=False, has_channels=False):
    return attention.of_topic("orders", depth, paused=paused, has_channels=has_channels)


def trend(*, span_s=10.0, messages=0.0, finished=0.0, depth=0.0, timeouts=0.0):
    return Trend(span_s, messages, finished, depth, timeouts)


def marks(concerns):
    return [(concern.mark, concern.level) for concern in concerns]


def test_a_channel_that_flows_needs_no_attention():
    assert not attention.of_channel(channel(depth=5, client_count=1), trend(messages=100, finished=100))
    assert not attention.of_channel(channel(), None)


def test_messages_that_nobody_consumes_are_trouble():
    (concern,) = attention.of_channel(channel(depth=1200), None)

    assert marks([concern]) == [("no consumers", Level.TROUBLE)]
    assert concern.text == "1,200 messages wait and nobody consumes"
    assert (concern.topic, concern.channel) == ("orders", "audit")


def test_how_fast_the_trouble_grows_is_said():
    (concern,) = attention.of_channel(channel(depth=1), trend(messages=20, depth=20))

    assert concern.text == "1 message waits and nobody consumes, 20 more each second"


def test_a_channel_without_consumers_and_without_messages_is_at_rest():
    assert not attention.of_channel(channel(), trend())


def test_a_paused_channel_is_watched_and_not_called_stuck():
    concerns = attention.of_channel(channel(depth=10, paused=True), trend())

    assert marks(concerns) == [("paused", Level.WATCH)]


def test_consumers_that_finish_nothing_are_stuck():
    concerns = attention.of_channel(channel(depth=10, client_count=2), trend(span_s=8))

    assert marks(concerns) == [("stuck", Level.TROUBLE)]
    assert concerns[0].text == "10 messages wait and 2 consumers finished none for 8 s"


def test_two_looks_in_quick_succession_call_nobody_stuck():
    assert not attention.of_channel(channel(depth=10, client_count=2), trend(span_s=2))


def test_a_queue_that_grows_although_it_is_consumed_is_trouble():
    concerns = attention.of_channel(
        channel(depth=5000, client_count=1), trend(messages=100, finished=40, depth=60)
    )

    assert marks(concerns) == [("growing", Level.TROUBLE)]
    assert (
        concerns[0].text == "5,000 messages wait, 60 more each second: 1 consumer finishes 40 of 100 a second"
    )


def test_a_small_queue_or_a_small_growth_is_no_trend():
    small = attention.of_channel(
        channel(depth=50, client_count=1), trend(messages=100, finished=40, depth=60)
    )
    slow = attention.of_channel(
        channel(depth=5000, client_count=1), trend(messages=100, finished=98, depth=2)
    )

    assert not small
    assert not slow


def test_time_outs_are_told_beside_other_concerns():
    concerns = attention.of_channel(channel(depth=10), trend(timeouts=0.5))

    assert marks(concerns) == [("no consumers", Level.TROUBLE), ("timing out", Level.WATCH)]


def test_a_topic_that_holds_messages_for_want_of_a_channel_is_watched():
    assert marks(of_topic(depth=3)) == [("no channel", Level.WATCH)]
    assert not of_topic(depth=3, has_channels=True)


def test_a_paused_topic_is_watched():
    (concern,) = of_topic(depth=3, paused=True)

    assert (concern.mark, concern.text) == ("paused", "paused; 3 messages wait in the topic")


def test_a_silent_or_unhealthy_node_is_trouble():
    assert marks(attention.of_node("a:4151", silent="timed out")) == [("no answer", Level.TROUBLE)]
    assert marks(attention.of_node("a:4151", health="NOK - disk full")) == [("unhealthy", Level.TROUBLE)]
    assert not attention.of_node("a:4151")


def test_a_draining_node_says_what_remains_unless_it_is_silent():
    (concern,) = attention.of_node("a:4151", remaining=1200)

    assert (concern.mark, concern.level) == ("draining", Level.WATCH)
    assert concern.text.endswith("1,200 messages remain")
    assert marks(attention.of_node("a:4151", silent="timed out", remaining=3)) == [
        ("no answer", Level.TROUBLE)
    ]


def test_a_node_that_answers_but_is_not_listed_is_trouble():
    assert marks(attention.of_node("a:4151", listed=False)) == [("not listed", Level.TROUBLE)]


def test_the_worst_comes_first_and_nodes_before_channels():
    concerns = [
        *of_topic(depth=3, paused=True),
        *attention.of_channel(channel(depth=10), None),
        *attention.of_channel(channel(depth=20), None),
        *attention.of_node("a:4151", silent="timed out"),
    ]

    ordered = attention.worst_first(concerns)

    assert [concern.mark for concern in ordered] == ["no answer", "no consumers", "no consumers", "paused"]
    assert ordered[1].weight == 20
    assert attention.worst_level(concerns) == Level.TROUBLE
    assert attention.worst_level([]) is None
