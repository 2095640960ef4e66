"""What a draining node refuses, and what it reports as remaining."""

import struct

import pytest

from nsqclient.wire.frames import FrameParser
from nsqd.engine.draining import Unread, report
from nsqd.protocol.batch import SLICE_MESSAGES
from nsqd.protocol.connection_state import OK
from tests.support.wire import sized

BATCH = sized(struct.pack(">I", 1) + sized(b"x"))
PUBLISHES = {
    "PUB": b"PUB t\n" + sized(b"x"),
    "DPUB": b"DPUB t 9\n" + sized(b"x"),
    "MPUB": b"MPUB t\n" + BATCH,
}


def drained(node):
    node.broker.draining = True
    return report(node.broker, Unread(), node.now_ns)


def says(node, data, session=None):
    if session is None:
        session, _ = node.session()
        data = b"  V2" + data
    session.receive(data, node.now_ns)
    return session.take_replies()


@pytest.mark.parametrize("word", PUBLISHES)
def test_publish_is_refused_by_its_name_behind_its_body(node, word):
    node.broker.draining = True
    session, _ = node.session()
    command = b"  V2" + PUBLISHES[word]
    assert says(node, command[:-1], session) == b""

    answer = says(node, command[-1:], session)

    assert FrameParser().feed(answer) == [(1, f"E_{word}_FAILED {word} failed draining".encode())]
    assert session.closing
    assert node.broker.topics == {}


def test_refused_batch_with_senseless_size_is_not_waited_for(node):
    node.broker.draining = True

    assert says(node, b"MPUB t\n\xff\xff\xff\xff").endswith(b"MPUB failed draining")


@pytest.mark.parametrize("word", ["PUB", "MPUB"])
def test_publisher_that_was_welcome_before_is_refused_too(node, word):
    session, _ = node.session()
    assert says(node, b"  V2" + PUBLISHES[word], session) == OK
    node.broker.draining = True
    session.forget_publish_lines()

    assert b"failed draining" in says(node, PUBLISHES[word], session)


def test_node_with_nothing_is_drained_as_soon_as_it_drains(node):
    assert report(node.broker, Unread(), node.now_ns)["drained"] is False
    assert drained(node) == {"draining": True, "drained": True, "remaining": 0, "topics": []}


def test_drain_counts_all_states_of_channel(node, channel):
    node.publish(b"1", b"2", b"3", b"4")
    consumer, outlet = node.subscribe(channel, rdy=2)
    (first, _, _), _ = outlet.taken()
    channel.requeue(node.broker.ids.decode(first), consumer, 5_000_000_000, node.now_ns)
    consumer.rdy = 1

    (topic,) = drained(node)["topics"]
    assert topic["channels"] == [
        {
            "channel_name": "c",
            "remaining": 4,
            "depth": 2,
            "in_flight_count": 1,
            "deferred_count": 1,
            "due_in_ms": None,
            "client_count": 1,
            "unread_ms": None,
            "paused": False,
        }
    ]
    assert (topic["remaining"], topic["backlog"]) == (4, 0)


def test_drain_names_first_due_time_when_all_is_deferred(node, channel):
    node.publish(b"1")
    consumer, outlet = node.subscribe(channel, rdy=1)
    ((first, _, _),) = outlet.taken()
    channel.requeue(node.broker.ids.decode(first), consumer, 5_000_000_000, node.now_ns)

    (topic,) = drained(node)["topics"]
    assert topic["channels"][0]["due_in_ms"] == 5000


def test_drain_counts_backlog_of_topic_without_channels(node):
    node.publish(b"1", b"2")

    state = drained(node)
    assert state["remaining"] == 2
    assert state["topics"][0] | {"channels": []} == {
        "topic_name": "t",
        "remaining": 2,
        "backlog": 2,
        "channel_count": 0,
        "unread_ms": 0,
        "paused": False,
        "channels": [],
    }


def test_ephemeral_topics_and_channels_do_not_count(node):
    node.channel("c#ephemeral", topic="t")
    node.channel("c", topic="u#ephemeral")
    node.publish(b"1", topic="t")
    node.publish(b"1", topic="u#ephemeral")

    assert drained(node)["drained"] is True


def test_publish_that_is_being_stored_holds_the_end_up(node):
    node.channel()
    session, _ = node.session()
    session.receive(b"  V2" + PUBLISHES["PUB"], node.now_ns)

    assert drained(node)["drained"] is False
    node.turn()
    assert drained(node)["remaining"] == 1


def test_long_batch_that_is_being_published_holds_the_end_up(node):
    session, _ = node.session()
    many = [b"x"] * (SLICE_MESSAGES + 1)
    session.receive(b"  V2MPUB t\n" + sized(struct.pack(">I", len(many)) + b"".join(map(sized, many))), 0)
    node.turn()
    assert session.is_blocked()

    assert drained(node)["drained"] is False
    while session.is_blocked():
        session.resume(node.now_ns)
    node.turn()
    assert drained(node)["remaining"] == len(many)


def test_drain_lists_only_topics_with_messages(node):
    node.channel("empty")
    node.channel("c", topic="other")
    node.publish(b"1", topic="other")

    assert [topic["topic_name"] for topic in drained(node)["topics"]] == ["other"]
