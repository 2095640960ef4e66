"""Pending messages that are withheld for a while."""

import pytest

from tests.support.engine import SECOND, counts


@pytest.fixture
def channel(node):
    made = node.channel()
    node.publish(*[b"%d" % number for number in range(10)])
    return made


@pytest.fixture
def first(channel):
    return channel.log.next_seq - 10


def given(node, channel):
    consumer, outlet = node.subscribe(channel, rdy=100)
    bodies = [int(body) for _, _, body in outlet.taken()]
    node.broker.remove_consumer(consumer)
    return sorted(bodies)


def test_withheld_messages_are_pending_but_not_in_depth(node, channel, first):
    channel.backlog.suspend([(first, first + 7)])

    assert channel.backlog.pending.count == 3
    assert given(node, channel) == [7, 8, 9]
    assert channel.backlog.unfinished(0, channel.backlog.end) == [(first, first + 10)]


def test_withheld_messages_stay_withheld_when_they_time_out(node, channel, first):
    consumer, _ = node.subscribe(channel, rdy=100, msg_timeout=5)
    channel.requeue(first, consumer, 2 * SECOND, node.now_ns)
    channel.requeue(first + 1, consumer, 0, node.now_ns)
    channel.backlog.suspend([(first, first + 10)])
    consumer.rdy = 0

    node.advance(10)

    assert counts(channel) == (0, 0, 0)


def test_released_messages_wait_unless_deferred_in_flight_or_finished(node, channel, first):
    consumer, _ = node.subscribe(channel, rdy=4)
    channel.requeue(first, consumer, 20 * SECOND, node.now_ns)
    consumer.rdy = 0
    channel.backlog.suspend([(first, first + 10)])
    channel.finish([first + 3], consumer, node.now_ns)
    channel.backlog.suspend([(first + 9, first + 10)])

    assert channel.backlog.pending.ranges() == [(first + 4, first + 9)]
    assert channel.backlog.suspended == [(first + 9, first + 10)]


def test_released_messages_keep_their_attempts(node, channel, first):
    consumer, _ = node.subscribe(channel, rdy=4)
    channel.backlog.suspend([(first, first + 10)])
    node.broker.remove_consumer(consumer)
    assert channel.backlog.pending.count == 0

    channel.backlog.suspend([])

    _, outlet = node.subscribe(channel, rdy=100)
    assert sorted((int(body), attempts) for _, attempts, body in outlet.taken()) == [
        (number, 2 if number < 4 else 1) for number in range(10)
    ]


def test_withhold_only_replaces_earlier_ranges(node, channel, first):
    channel.backlog.suspend([(first, first + 5)])
    channel.backlog.suspend([(first + 3, first + 8)])

    assert given(node, channel) == [0, 1, 2, 8, 9]
