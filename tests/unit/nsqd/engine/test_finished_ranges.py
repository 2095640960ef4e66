"""The facts that one nsqd may tell another about a log that both have."""

import pytest

from nsqd.engine import finished_ranges
from nsqd.engine.finished_ranges import FinishedRanges
from nsqd.log.encoder import Batch
from nsqd.log.ranges import within, without
from nsqd.log.tail import MAX_REMEMBERED_RANGES
from tests.support.promoted import lose_all_but


@pytest.fixture
def channel(node):
    made = node.channel()
    node.publish(*[b"%d" % number for number in range(10)])
    return made


@pytest.fixture
def first(channel):
    return channel.log.next_seq - 10


def told(node, name="c"):
    return finished_ranges.facts(node.topic(), name).finished


def test_finished_message_is_a_fact(node, channel, first):
    consumer, _ = node.subscribe(channel, rdy=5)
    for seq in (first, first + 1, first + 4):
        channel.finish([seq], consumer, node.now_ns)

    assert told(node) == [(first, first + 2), (first + 4, first + 5)]


def test_pending_message_is_no_fact(node, channel):
    node.subscribe(channel, rdy=5)

    assert told(node) == []


def test_messages_before_channel_are_facts(node, channel, first):
    node.channel("late")

    assert told(node, "late") == [(first, first + 10)]


def test_numbers_that_no_message_has_are_not_told(node, channel, first):
    topic = node.topic()
    topic.skip_to(first + 1000)
    node.publish(b"in another life")

    channel.empty()

    assert finished_ranges.stored_ranges(topic) == [(first, first + 10), (first + 1000, first + 1001)]
    assert told(node) == finished_ranges.stored_ranges(topic)


def test_however_many_publishes_fail_oldest_messages_were_had(node, channel, first):
    topic = node.topic()
    for _ in range(2 * MAX_REMEMBERED_RANGES):
        topic.stage(b"refused", node.now_ns)
        topic.abandon()
        node.publish(b"stored")

    assert finished_ranges.stored_ranges(topic) == [(first, topic.log.next_seq)]
    # They are all pending and can be read.
    assert finished_ranges.readable_or_finished(topic, topic.log.extents()) == finished_ranges.stored_ranges(
        topic
    )
    assert told(node) == without(finished_ranges.stored_ranges(topic), topic.log.extents())


def test_skipped_message_is_no_fact(node, channel, first):
    topic = node.topic()
    lose_all_but(topic, first + 5)
    _, outlet = node.subscribe(channel, rdy=100)

    assert [body for _, _, body in outlet.taken()] == [b"5", b"6", b"7", b"8", b"9"]
    assert channel.backlog.lowest() == first + 5
    assert told(node) == []
    assert finished_ranges.stored_ranges(topic) == [(first + 5, first + 10)]


def test_exclusive_message_is_a_fact_of_other_channels(node, channel, first):
    node.channel("alone")
    node.topic().stage_for("alone", Batch([b"only"]), node.now_ns)
    node.broker.dirty[node.topic()] = None
    node.turn()
    node.publish(b"for both")

    assert told(node) == [(first + 10, first + 11)]


def test_unknown_channel_has_no_facts(node, channel):
    assert finished_ranges.facts(node.topic(), "unknown") is None


def test_deleted_channel_has_finished_everything(node, channel, first):
    generation = channel.generation
    node.broker.delete_channel(node.topic(), "c")

    assert finished_ranges.facts(node.topic(), "c") == FinishedRanges(generation, [(first, first + 10)])


def test_channel_made_again_or_set_back_has_another_generation(node, channel, first):
    topic, before = node.topic(), channel.generation
    node.broker.seek_channel(topic, channel, first, [(first, first + 10)])
    sought = channel.generation
    node.broker.delete_channel(topic, "c")
    redelivered = node.channel().generation

    assert len({before, sought, redelivered}) == 3


def test_finished_elsewhere_in_topic_backlog_is_a_fact(node, channel, first):
    node.broker.pause_topic(node.topic(), paused=True)
    node.publish(b"held back")
    channel.ahead = [(first + 10, first + 11)]

    assert told(node) == [(first + 10, first + 11)]


def test_pending_anywhere_has_messages_of_all_channels(node, channel, first):
    other = node.channel("other")
    node.publish(b"10", b"11")
    channel.commit(first + 12)
    other.commit(first + 11)

    assert finished_ranges.pending_anywhere(node.topic()) == [(first + 11, first + 12)]


def test_unreadable_pending_message_needs_copy(node, channel, first):
    node.broker.finish_messages(node.topic(), channel, [first + 7])

    settled = finished_ranges.readable_or_finished(node.topic(), [(first, first + 4)])

    assert within(settled, first, 1 << 62) == [(first, first + 4), (first + 7, first + 8)]


def test_messages_never_stored_are_neither_readable_nor_settled(node, channel, first):
    topic = node.topic()
    topic.skip_to(first + 1000)
    node.publish(b"in another life")
    node.topic().log.stored_ranges.remove(first + 8, first + 10)
    has = [(first, first + 8), (first + 1000, first + 1001)]

    assert finished_ranges.readable(topic, [(first, first + 1001)]) == has
    assert within(finished_ranges.readable_or_finished(topic, [(first, first + 1001)]), first, 1 << 62) == has
