from nsqadmin.stats.slow import why_slow
from nsqadmin.stats.sums import ChannelSum
from nsqadmin.stats.trend import Trend
from tests.support.records import consumer


def part(node="a:1", depth=100, consumers=2):
    return ChannelSum("orders", "a", depth, client_count=consumers, node=node)


def why(depth=100, trend=None, parts=None, consumers=None, *, paused=False, connected=0):
    parts = [part()] if parts is None else parts
    consumers = [consumer(in_flight=1, ready=10)] if consumers is None else consumers
    total = ChannelSum("orders", "a", depth, client_count=connected, paused=paused, trend=trend, parts=parts)
    return why_slow(total, consumers)


def test_empty_channel_has_no_reasons():
    assert why(depth=0) == []


def test_paused_channel_has_one_reason():
    assert why(paused=True) == ["It is paused."]
    assert why(parts=[part(consumers=0)], consumers=()) == ["No consumers connected."]


def test_node_without_consumers_is_named():
    assert why(parts=[part(), part("b:1", depth=3, consumers=0)]) == [
        "No consumers on b:1: 3 messages waiting there."
    ]


def test_silent_consumer_is_named_with_its_time_and_what_it_holds():
    (said,) = why(consumers=[consumer(), consumer("stuck-1", in_flight=7, silent_s=125.0)])

    assert said == "7 in flight, no FIN: stuck-1 (for 2m 05s)."


def test_consumers_that_take_nothing_are_named():
    (said,) = why(consumers=[consumer(in_flight=0, ready=0)])

    assert said.startswith("None of the consumers takes any messages now (RDY 0)")


def test_handlers_are_too_slow_by_factor_and_say_whether_they_have_room():
    trend = Trend(10, messages=100, finished=40)

    assert why(trend=trend) == ["100 arrive and 40 are finished a second: too slow by a factor of 2.5."]
    (full,) = why(trend=trend, consumers=[consumer(in_flight=10, ready=10)])
    assert full.endswith("by a factor of 2.5 and all in-flight slots are full (RDY).")


def test_queue_that_is_caught_up_with_says_when():
    assert why(depth=300, trend=Trend(10, messages=10, finished=12.5)) == [
        "It catches up: 12.5 are finished and 10 arrive a second; empty in about 2m 00s."
    ]


def test_time_outs_are_reason():
    assert why(trend=Trend(10, messages=1, finished=1, timeouts=2)) == [
        "Handlers take longer than the message time-out: 2 a second return."
    ]


def test_consumers_that_finish_nothing_do_not_keep_pace():
    full = [consumer(in_flight=10, ready=10)]

    for arrives in (0, 5):
        (said,) = why(trend=Trend(10, messages=arrives), consumers=full)
        assert said == "Consumers finish nothing and all in-flight slots are full (RDY)."
    assert why(trend=Trend(10), consumers=[consumer(in_flight=1, ready=10)]) == ["Consumers finish nothing."]
    assert why(trend=Trend(10, messages=5, finished=5), consumers=full) == [
        "Consumers keep pace, but all in-flight slots are full (RDY)."
    ]
