"""Section 2.6 PUB, MPUB, DPUB: every check in its order, every size at the limit and beyond it."""

import pytest

from tests.support.waiting import wait_until
from tests.support.wire import batch, dpub, mpub, pub, rdy, size, sized

MAX_MSG = 1048576
MAX_BODY = 5242880

GOOD_NAMES = ["a", "a" * 64, "a.b-c_D9", ".", "..", "a" * 54 + "#ephemeral"]
BAD_NAMES = [
    (b"", '""'),
    (b"a" * 65, '"' + "a" * 65 + '"'),
    (b"a" * 55 + b"#ephemeral", '"' + "a" * 55 + '#ephemeral"'),
    (b"#ephemeral", '"#ephemeral"'),
    (b"a#", '"a#"'),
    (b"a#ephemeralx", '"a#ephemeralx"'),
    (b"a/b", '"a/b"'),
    (b"a:b", '"a:b"'),
    (b"a\tb", r'"a\tb"'),
    (b'a"b', r'"a\"b"'),
    (b"a\\b", r'"a\\b"'),
    (b"\xff", r'"\xff"'),
    (b"\x7f", r'"\x7f"'),
    (b"\x00", r'"\x00"'),
    ("\u00e9".encode(), '"\u00e9"'),
    ("\u2028".encode(), r'"\u2028"'),
    ("\U000e0001".encode(), r'"\U000e0001"'),
]


@pytest.fixture
def consumer(connect, topic):
    """A consumer that is subscribed to the test's topic and ready for more messages than it gets."""
    wire = connect()
    wire.subscribe(topic, ready=100)
    return wire


# --- names


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_good_topic_name_is_taken_by_every_publish_command(wire, name):
    wire.send(pub(name, b"m"), mpub(name, b"m"), dpub(name, 1, b"m"))
    wire.ok(3)


@pytest.mark.parametrize(("name", "quoted"), BAD_NAMES)
def test_bad_topic_name_is_quoted_in_error(connect, name, quoted):
    for word, line in ((b"PUB", b"PUB %b\n"), (b"DPUB", b"DPUB %b 1\n"), (b"SUB", b"SUB %b ch\n")):
        refused = connect().refusal(line % name, sized(b"m"))
        assert refused == b"E_BAD_TOPIC %b topic name %b is not valid" % (word, quoted.encode())


@pytest.mark.parametrize(("name", "quoted"), BAD_NAMES)
def test_bad_topic_name_in_mpub_gets_code_twice(wire, name, quoted):
    refused = wire.refusal(b"MPUB %b\n" % name, sized(batch(b"m")))
    assert refused == b"E_BAD_TOPIC E_BAD_TOPIC MPUB topic name %b is not valid" % quoted.encode()


# --- sizes


@pytest.mark.parametrize("word", ["PUB", "DPUB"])
@pytest.mark.parametrize("number", [MAX_MSG + 1, 2**31 - 1])
def test_message_beyond_limit_is_refused_before_its_body_is_sent(wire, topic, word, number):
    line = f"{word} {topic} 1\n".encode()
    refused = wire.refusal(line, size(number))
    assert refused == f"E_BAD_MESSAGE {word} message too big {number} > {MAX_MSG}".encode()


def test_message_of_exactly_limit_arrives_whole(wire, consumer, topic):
    body = bytes(range(256)) * (MAX_MSG // 256)
    wire.send(pub(topic, body), dpub(topic, 0, body), mpub(topic, body))
    wire.ok(3)
    assert [message.body == body for message in consumer.messages(3)] == [True] * 3


def test_refused_message_creates_no_topic(wire, nsqd, topic):
    wire.refusal(b"PUB %b\n" % topic.encode(), size(0))
    assert nsqd.get(f"/stats?format=json&topic={topic}")["topics"] is None


# --- MPUB


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        (size(0), b"MPUB invalid message(0) body size 0"),
        (size(-7), b"MPUB invalid message(0) body size -7"),
        (sized(b"good") + size(0), b"MPUB invalid message(1) body size 0"),
        (size(MAX_MSG + 1), b"MPUB message too big 1048577 > 1048576"),
        (sized(b"good") + size(MAX_MSG + 1), b"MPUB message too big 1048577 > 1048576"),
    ],
)
def test_mpub_with_message_of_impossible_size_publishes_nothing(wire, topic, stats, messages, error):
    refused = wire.refusal(b"MPUB %b\n" % topic.encode(), size(100), size(2), messages)
    assert refused == b"E_BAD_MESSAGE " + error
    assert stats(topic)["message_count"] == 0  # although the topic was created, as in the original


def test_mpub_with_body_of_exactly_limit_is_taken(wire, topic, stats):
    bodies = [b"m" * (MAX_MSG - 5)] * 4 + [b"m" * (MAX_MSG - 4)]
    assert len(batch(*bodies)) == MAX_BODY
    assert wire.ask(mpub(topic, *bodies)) == b"OK"
    assert stats(topic)["message_count"] == 5


@pytest.mark.parametrize("declared", [1, 5, 1000, MAX_BODY])
def test_mpub_ends_where_its_messages_do_whatever_length_it_declares(wire, topic, stats, declared):
    wire.send(b"MPUB %b\n" % topic.encode(), size(declared), batch(b"one", b"two"), pub(topic, b"three"))
    wire.ok(2)
    assert stats(topic)["message_count"] == 3


# --- DPUB


@pytest.mark.parametrize("delay", [b"-1", b"+1", b"x", b"1.5", b"1e3"])
def test_dpub_needs_decimal_delay(wire, topic, delay):
    refused = wire.refusal(b"DPUB %b %b\n" % (topic.encode(), delay), sized(b"m"))
    assert refused == b"E_INVALID DPUB could not parse timeout " + delay


@pytest.mark.parametrize("delay", [3600001, 2**63 - 1])
def test_dpub_refuses_delay_beyond_limit(wire, topic, delay):
    refused = wire.refusal(b"DPUB %b %d\n" % (topic.encode(), delay), sized(b"m"))
    assert refused == f"E_INVALID DPUB timeout {delay} out of range 0-3600000".encode()


# --- effects of a publish


def test_message_carries_its_publish_time_and_id_of_16_hex_digits(wire, consumer, topic):
    wire.publish(topic, b"m")
    message = consumer.message()
    assert message.attempts == 1
    assert len(message.id) == 16
    assert set(message.id) <= set(b"0123456789abcdef")
    wire.publish(topic, b"m")
    assert consumer.message().timestamp_ns > message.timestamp_ns


def test_connection_that_published_is_listed_as_a_producer(wire, nsqd, topic):
    wire.publish(topic, b"a", b"b")
    wire.send(mpub(topic, b"c", b"d"))
    wire.ok()
    (mine,) = producers(nsqd, wire.port)
    assert mine["pub_counts"] == [{"topic": topic, "count": 4}]
    port = wire.port
    wire.close()
    wait_until(lambda: not producers(nsqd, port), "the producer is forgotten")


def producers(nsqd, port):
    listed = nsqd.get("/stats?format=json")["producers"] or []
    return [producer for producer in listed if producer["remote_address"] == f"127.0.0.1:{port}"]


def test_ephemeral_topic_takes_what_it_cannot_keep(cluster, connect):
    nsqd = cluster.nsqd("--mem-queue-size=5")
    wire = connect(nsqd)
    wire.publish("e#ephemeral", *[b"%d" % n for n in range(20)])
    wire.subscribe("e#ephemeral")
    (found,) = nsqd.get("/stats?format=json")["topics"]
    assert found["message_count"] == 20
    assert found["channels"][0]["depth"] == 5
    wire.send(rdy(20))
    assert len(wire.messages(5)) == 5
    wire.quiet()
