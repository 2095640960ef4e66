"""Delivery of a channel beside the channels of carried logs."""

import pytest
from tests.support.carrying import Carrier

from nsqd.engine import carried
from nsqd.engine.delivering import DRAWN_AT_ONCE
from nsqd.server.delivery import TURN_BYTES, serve
from tests.support.engine import Node, bodies


def home_with(count, body=b"theirs"):
    node = Node()
    node.advance(7)
    node.channel()
    node.publish(*[body] * count)
    return node


@pytest.fixture
def carrier():
    return Carrier()


def take_one_by_one(node, consumer, outlet, count):
    """The bodies that a consumer gets that takes one message at a time."""
    got = []
    for _ in range(count):
        for message_id, _, body in outlet.taken():
            got.append(body)
            session, _ = node.session()
            session.receive(b"  V2", node.now_ns)
            session.consumer, session.state = consumer, 3
            session.receive(b"FIN " + message_id + b"\n", node.now_ns)
            node.turn()
    return got


def test_a_long_backlog_of_another_does_not_stand_before_what_is_published_now(carrier):
    channel = carrier.channel()
    carrier.carry(home_with(1000).topic())
    consumer, outlet = carrier.subscribe(channel, rdy=1)
    take_one_by_one(carrier, consumer, outlet, 5)
    carrier.publish(b"new")

    assert b"new" in take_one_by_one(carrier, consumer, outlet, 3)


def test_logs_take_turns_by_bytes(carrier):
    channel = carrier.channel()
    carrier.publish(*[b"o" * 170] * 100)
    carrier.carry(home_with(100, b"t" * 470).topic())
    consumer, outlet = carrier.subscribe(channel, rdy=1)

    got = [body[:1] for body in take_one_by_one(carrier, consumer, outlet, 60)]

    # A frame has 30 bytes more than its body.
    assert abs(got.count(b"o") * 200 - got.count(b"t") * 500) <= 700


def test_one_without_messages_saves_nothing_up(carrier):
    channel = carrier.channel()
    carrier.carry(home_with(200).topic())
    consumer, outlet = carrier.subscribe(channel, rdy=1)
    take_one_by_one(carrier, consumer, outlet, 100)
    carrier.publish(*[b"new"] * 50)

    assert take_one_by_one(carrier, consumer, outlet, 21)[1:].count(b"theirs") >= 9


def test_several_consumers_share_what_waits_in_all_logs(carrier):
    channel = carrier.channel()
    carrier.publish(*[b"ours"] * 10)
    carrier.carry(home_with(10).topic())
    channel.paused = True
    outlets = [carrier.subscribe(channel, rdy=100)[1] for _ in range(2)]
    channel.paused = False
    carrier.broker.serve(channel)
    carrier.turn()

    counts = [len(bodies(outlet)) for outlet in outlets]

    assert sum(counts) == 20
    assert min(counts) >= 5


def test_a_turn_is_bounded_for_all_logs_together(carrier):
    channel = carrier.channel()
    carrier.publish(*[b"o" * 1000] * 200)
    carrier.carry(home_with(200, b"t" * 1000).topic())
    channel.paused = True
    _, outlet = carrier.subscribe(channel, rdy=1000)
    channel.paused = False
    assert serve(carrier.broker, channel, carrier.now_ns)
    assert sum(map(len, outlet.frames)) <= 3 * TURN_BYTES

    carrier.broker.serve(channel)
    for _ in range(10):
        carrier.turn()

    assert len(bodies(outlet)) == 400


def test_a_log_that_cannot_be_read_does_not_hold_up_the_others(carrier):
    channel = carrier.channel()
    carrier.publish(b"ours")
    copy = carrier.carry(home_with(3).topic(), [])
    copy.channels["c"].retry_ns = carrier.now_ns + 10**12
    carried.allow(carrier.broker, copy, None)
    _, outlet = carrier.subscribe(channel, rdy=10)

    assert bodies(outlet) == [b"ours"]


def test_a_sampled_consumer_gets_its_part_of_all_logs(carrier):
    channel = carrier.channel()
    carrier.publish(b"ours")
    copy = carrier.carry(home_with(3).topic())
    consumer, outlet = carrier.subscribe(channel)
    consumer.keep = lambda: False
    carrier.ready(consumer, 10)

    assert bodies(outlet) == []
    assert (channel.lowest(), copy.channels["c"].lowest()) == (None, None)


def test_the_nearest_consumer_is_served_first():
    carrier = Carrier(topology_aware=True)
    channel = carrier.channel()
    copy = carrier.carry(home_with(3).topic())
    channel.paused = True
    far, far_outlet = carrier.subscribe(channel, rdy=100)
    near, near_outlet = carrier.subscribe(channel, rdy=100)
    near.nearness, far.nearness = 0, 2
    channel.paused = False
    carrier.broker.serve(channel)
    carrier.turn()

    assert len(bodies(near_outlet)) >= len(bodies(far_outlet))
    assert copy.channels["c"].zones[0] >= 2


def test_a_turn_ends_after_some_thousand_messages_that_a_sample_rate_passes_over(carrier):
    channel = carrier.channel()
    carrier.publish(*[b"ours"] * 6000)
    carrier.carry(home_with(6000).topic())
    consumer, outlet = carrier.subscribe(channel)
    consumer.keep = lambda: False
    consumer.rdy = 2500
    channel.refresh(consumer)
    turns = 1

    while serve(carrier.broker, channel, carrier.now_ns):
        turns += 1

    assert turns == -(-12_000 // DRAWN_AT_ONCE)
    assert outlet.taken() == []
    assert all(one.depth == 0 for one in (channel, *channel.siblings))
