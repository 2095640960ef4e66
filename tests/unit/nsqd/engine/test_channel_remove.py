"""Removing ranges of messages from a channel, whatever their state is."""

import pytest


@pytest.fixture
def channel(node):
    made = node.channel()
    node.publish(*[b"%d" % number for number in range(20)])
    return made


@pytest.fixture
def first(channel):
    return channel.log.next_seq - 20


def bodies(outlet):
    return [int(body) for _, _, body in outlet.taken()]


def test_consumer_loses_what_it_has_in_flight(node, channel, first):
    consumer, outlet = node.subscribe(channel, rdy=4)
    assert bodies(outlet) == [0, 1, 2, 3]

    channel.remove([(first + 1, first + 3)])
    node.turn()

    node.broker.serve(channel)
    node.turn()
    assert bodies(outlet) == [4, 5]
    assert [index for index, _ in channel.finish([first + 1], consumer, node.now_ns)] == [0]
    assert channel.finish([first], consumer, node.now_ns) == []
    assert consumer.in_flight == 3


def test_topic_backlog_is_finished_when_channel_gets_it(node, channel, first):
    topic = node.topic()
    node.broker.pause_topic(topic, paused=True)
    node.publish(b"20", b"21", b"22")
    end = topic.log.next_seq

    assert channel.merge_finished([(first, end - 1)], end) == [(first, end - 1)]
    assert channel.merge_finished([(first, end - 1)], end) == []
    assert channel.backlog.pending.count == 0

    node.broker.pause_topic(topic, paused=False)
    _, outlet = node.subscribe(channel, rdy=100)
    assert bodies(outlet) == [22]


def test_messages_behind_log_are_not_remembered(channel):
    end = channel.log.next_seq

    channel.merge_finished([(end, end + 100)], end)

    assert channel.ahead == []
