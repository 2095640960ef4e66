import json

import pytest

from nsqd.engine import replay
from nsqd.engine.sending_back import DeadLetter, batch_of, finish, is_there
from nsqd.log.encoder import Batch
from nsqd.log.headers import split
from tests.support.engine import Node


@pytest.fixture
def node():
    node = Node()
    node.channel("mine")
    node.channel("other")
    return node


def give(node, channel, *bodies):
    topic = node.topic()
    topic.stage_for(channel, Batch(list(bodies)), node.now_ns)
    node.broker.dirty[topic] = None
    notes = list(topic.staged_notes())
    node.turn()
    return [json.loads(note) for note in notes if b'"only"' in note]


def depths(node):
    return {name: channel.backlog.pending.count for name, channel in node.topic().channels.items()}


def pending(node, name):
    channel = node.topic().channels[name]
    return channel.backlog.unfinished(0, node.topic().log.next_seq)


def test_message_sent_back_is_pending_on_one_channel(node):
    node.publish(b"1")

    give(node, "mine", b"2", b"3")
    node.publish(b"4")

    end = node.topic().log.next_seq
    assert depths(node) == {"mine": 4, "other": 2}
    assert pending(node, "mine") == [(end - 4, end)]
    assert pending(node, "other") == [(end - 4, end - 3), (end - 1, end)]
    assert [channel.message_count for channel in node.topic().channels.values()] == [4, 2]


def test_publish_in_turn_of_sending_back_goes_to_all_channels(node):
    node.topic().stage(b"before", node.now_ns)
    node.topic().stage_for("mine", Batch([b"2"]), node.now_ns)
    node.topic().stage(b"after", node.now_ns)
    node.broker.dirty[node.topic()] = None
    node.turn()

    assert depths(node) == {"mine": 3, "other": 2}


def test_note_says_so_before_messages(node):
    (note,) = give(node, "mine", b"1", b"2")

    end = node.topic().log.next_seq
    assert note == {"note": "only", "channel": "mine", "first": end - 2, "end": end}


@pytest.mark.parametrize("name", ["mine", "gone"])
def test_message_sent_back_survives_crash(node, name):
    topic = node.topic()
    start = topic.log.next_seq
    replay.apply(
        topic, json.dumps({"note": "only", "channel": name, "first": start + 2, "end": start + 4}).encode()
    )

    # A start may find several appends as one range.
    topic.add_stored(start, start + 6)

    assert depths(node) == {"mine": 6 if name == "mine" else 4, "other": 4}
    channel = topic.channels["other"]
    assert channel.backlog.unfinished(0, start + 6) == [(start, start + 2), (start + 4, start + 6)]


def test_dead_letter_becomes_what_it_was():
    plain = DeadLetter(1, {"dead-topic": "t", "dead-channel": "c"}, b"body")
    traced = DeadLetter(2, {"dead-topic": "t", "traceparent": "00-1"}, b"other")

    assert plain.origin == ("t", "c")
    assert not batch_of([plain]).has_headers
    both = batch_of([plain, traced])
    assert both.has_headers
    assert [split(body) for body in both.bodies] == [({}, b"body"), ({"traceparent": "00-1"}, b"other")]


def test_pending_letter_is_there_until_finished(node):
    node.publish(b"1", b"2")
    topic = node.topic()
    first = topic.log.next_seq - 2
    assert is_there(topic, first)

    finish(topic, [first])

    assert not is_there(topic, first)
    assert depths(node) == {"mine": 1, "other": 1}
    assert pending(node, "mine") == [(first + 1, first + 2)]


def test_letter_in_flight_is_not_sent_back(node):
    node.publish(b"1")
    topic = node.topic()
    seq = topic.log.next_seq - 1
    for name in ("mine", "other"):
        node.subscribe(topic.channels[name], rdy=1)
    assert not is_there(topic, seq)

    finish(topic, [seq])

    assert [channel.backlog.in_flight.count for channel in topic.channels.values()] == [1, 1]
    assert pending(node, "mine") == [(seq, seq + 1)]


def test_letter_is_there_without_channel():
    node = Node()
    node.publish(b"1", b"2")
    topic = node.topic()
    first = topic.log.next_seq - 2

    assert is_there(topic, first)
    finish(topic, [first])

    assert (is_there(topic, first), topic.backlog.pending.count) == (False, 1)
