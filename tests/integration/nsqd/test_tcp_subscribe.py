"""Sections 2.6 SUB and RDY, 2.8 and 3.2: who gets which message, when, and how often."""

import pytest

from tests.support.waiting import wait_until
from tests.support.wire import mpub, rdy, sub


def arriving(wires, seconds=10):
    """The connections that have something to read, once there is one."""
    return wait_until(lambda: [wire for wire in wires if wire.has_more()], "something arrives", seconds)


# --- SUB


@pytest.mark.parametrize("line", [b"SUB\n", b"SUB topic\n"])
def test_sub_needs_topic_and_channel(wire, line):
    assert wire.refusal(line) == b"E_INVALID SUB insufficient number of parameters"


def test_channel_may_be_limited_in_its_consumers(cluster, connect):
    nsqd = cluster.nsqd("--max-channel-consumers=1")
    first = connect(nsqd)
    first.subscribe("t", "ch")
    refused = connect(nsqd).refusal(sub("t", "ch"))
    assert refused == b"E_SUB_FAILED SUB failed consumers for t:ch exceeds limit of 1"
    connect(nsqd).subscribe("t", "another")
    first.close()
    wait_until(lambda: connect(nsqd).ask_frame(sub("t", "ch")).data == b"OK", "the place is free again")


# --- RDY


def test_lower_rdy_recalls_nothing(wire, topic):
    wire.subscribe(topic)
    wire.send(mpub(topic, *[b"%d" % n for n in range(6)]))
    wire.ok()
    wire.send(rdy(4))
    four = wire.messages(4)
    wire.send(rdy(1), *[b"FIN %b\n" % message.id for message in four[:3]])
    wire.quiet()
    wire.send(b"FIN %b\n" % four[3].id)
    wire.message()
    wire.quiet()


@pytest.mark.parametrize("count", [b"", b"0", b"2500", b"0002500", b"18446744073709551616"])
def test_rdy_counts_that_are_legal(wire, topic, count):
    wire.subscribe(topic)
    wire.send(b"RDY %b\n" % count)
    wire.quiet()


@pytest.mark.parametrize(
    ("count", "error"),
    [
        (b"2501", b"RDY count 2501 out of range 0-2500"),
        (b"9223372036854775808", b"RDY count -9223372036854775808 out of range 0-2500"),
        (b"18446744073709551615", b"RDY count -1 out of range 0-2500"),
        (b"-1", b"RDY could not parse count -1"),
        (b"+1", b"RDY could not parse count +1"),
        (b"1.5", b"RDY could not parse count 1.5"),
        (b"x", b"RDY could not parse count x"),
        ("\u0661".encode(), "RDY could not parse count \u0661".encode()),
    ],
)
def test_rdy_counts_that_are_not(wire, topic, count, error):
    wire.subscribe(topic)
    assert wire.refusal(b"RDY %b\n" % count) == b"E_INVALID " + error


# --- who gets what


def test_consumers_of_one_channel_share_its_messages_in_turn(connect, topic):
    consumers = [connect() for _ in range(4)]
    for consumer in consumers:
        consumer.subscribe(topic, ready=1)
    producer = connect()
    counts = dict.fromkeys(consumers, 0)
    for _ in range(40):
        producer.publish(topic, b"m")
        (receiver,) = arriving(consumers)
        counts[receiver] += 1
        receiver.send(b"FIN %b\n" % receiver.message().id)
        receiver.quiet()
    assert set(counts.values()) == {10}


def test_first_channel_gets_earlier_messages_and_later_channels_start_empty(wire, connect, topic, stats):
    producer = connect()
    producer.publish(topic, b"early", b"bird")
    assert stats(topic)["depth"] == 2
    wire.subscribe(topic, "first", ready=10)
    assert [message.body for message in wire.messages(2)] == [b"early", b"bird"]
    second = connect()
    second.subscribe(topic, "second", ready=10)
    producer.publish(topic, b"late")
    assert second.message().body == b"late"
    assert wire.message().body == b"late"


def test_messages_of_disconnected_consumer_are_redelivered_immediately(connect, topic, stats):
    # With the original they first wait for their time-out.
    leaver, other = connect(), connect()
    leaver.subscribe(topic, ready=2)
    connect().publish(topic, b"a", b"b")
    assert [message.attempts for message in leaver.messages(2)] == [1, 1]
    other.subscribe(topic, ready=10)
    other.quiet()
    leaver.close()
    again = other.messages(2)
    assert sorted(message.body for message in again) == [b"a", b"b"]
    assert [message.attempts for message in again] == [2, 2]
    found = stats(topic, "ch")
    assert (found["client_count"], found["requeue_count"], found["returned_count"]) == (1, 0, 2)


def test_lone_message_is_sent_at_once_whatever_output_buffer_was_asked_for(wire, connect, topic):
    # The original would keep it back until the buffer is full or its timer fires.
    wire.identify(output_buffer_timeout=-1, output_buffer_size=65536)
    wire.subscribe(topic, ready=100)
    connect().publish(topic, b"m")
    assert wire.has_more(seconds=5)
    assert wire.message().body == b"m"


def test_full_queue_is_drained_in_order_by_pipelining_consumer(wire, connect, topic, stats):
    producer = connect()
    wire.subscribe(topic)
    for start in range(0, 5000, 500):
        producer.send(mpub(topic, *[b"%d" % n for n in range(start, start + 500)]))
        producer.ok()
    wire.send(rdy(700))
    bodies = []
    while len(bodies) < 5000:
        message = wire.message()
        bodies.append(int(message.body))
        wire.send(b"FIN %b\n" % message.id)
    assert bodies == list(range(5000))
    wire.quiet()
    channel = stats(topic, "ch")
    assert (channel["depth"], channel["in_flight_count"], channel["message_count"]) == (0, 0, 5000)
    assert channel["clients"][0]["finish_count"] == 5000
