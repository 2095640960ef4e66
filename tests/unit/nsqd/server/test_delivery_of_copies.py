"""Delivery of a channel next to the channels of promoted copies."""

import pytest

from nsqd.log.gaps import EVERYTHING
from nsqd.server.delivery import BYTES_PER_TURN, serve
from tests.support.engine import Node, bodies
from tests.support.promoted import Owner, suspend_only


def origin_with(count, body=b"theirs"):
    node = Node()
    node.advance(7)
    node.channel()
    node.publish(*[body] * count)
    return node


@pytest.fixture
def owner():
    return Owner()


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


def test_backlog_of_copy_does_not_delay_new_messages(owner):
    channel = owner.channel()
    owner.promote(origin_with(1000).topic())
    consumer, outlet = owner.subscribe(channel, rdy=1)
    take_one_by_one(owner, consumer, outlet, 5)
    owner.publish(b"new")

    assert b"new" in take_one_by_one(owner, consumer, outlet, 3)


def test_logs_take_turns_by_bytes(owner):
    channel = owner.channel()
    owner.publish(*[b"o" * 170] * 100)
    owner.promote(origin_with(100, b"t" * 470).topic())
    consumer, outlet = owner.subscribe(channel, rdy=1)

    got = [body[:1] for body in take_one_by_one(owner, consumer, outlet, 60)]

    # A frame has 30 bytes more than its body.
    assert abs(got.count(b"o") * 200 - got.count(b"t") * 500) <= 700


def test_idle_log_saves_no_credit(owner):
    channel = owner.channel()
    owner.promote(origin_with(200).topic())
    consumer, outlet = owner.subscribe(channel, rdy=1)
    take_one_by_one(owner, consumer, outlet, 100)
    owner.publish(*[b"new"] * 50)

    assert take_one_by_one(owner, consumer, outlet, 21)[1:].count(b"theirs") >= 9


def test_several_consumers_share_all_logs(owner):
    channel = owner.channel()
    owner.publish(*[b"ours"] * 10)
    owner.promote(origin_with(10).topic())
    channel.paused = True
    outlets = [owner.subscribe(channel, rdy=100)[1] for _ in range(2)]
    channel.paused = False
    owner.broker.serve(channel)
    owner.turn()

    counts = [len(bodies(outlet)) for outlet in outlets]

    assert sum(counts) == 20
    assert min(counts) >= 5


def test_turn_is_bounded_for_all_logs_together(owner):
    channel = owner.channel()
    owner.publish(*[b"o" * 1000] * 200)
    owner.promote(origin_with(200, b"t" * 1000).topic())
    channel.paused = True
    _, outlet = owner.subscribe(channel, rdy=1000)
    channel.paused = False
    assert serve(owner.broker, channel, owner.now_ns)
    assert sum(map(len, outlet.frames)) <= 3 * BYTES_PER_TURN

    owner.broker.serve(channel)
    for _ in range(10):
        owner.turn()

    assert len(bodies(outlet)) == 400


def test_log_that_cannot_be_read_does_not_hold_up_the_others(owner):
    channel = owner.channel()
    owner.publish(b"ours")
    copy = owner.promote(origin_with(3).topic(), [(0, EVERYTHING)])
    copy.channels["c"].retry_ns = owner.now_ns + 10**12
    suspend_only(owner, copy, [])
    _, outlet = owner.subscribe(channel, rdy=10)

    assert bodies(outlet) == [b"ours"]


def test_sample_rate_applies_to_all_logs(owner):
    channel = owner.channel()
    owner.publish(b"ours")
    copy = owner.promote(origin_with(3).topic())
    consumer, outlet = owner.subscribe(channel)
    consumer.keep = lambda: False
    owner.ready(consumer, 10)

    assert bodies(outlet) == []
    assert (channel.backlog.lowest(), copy.channels["c"].backlog.lowest()) == (None, None)


def test_nearest_consumer_is_served_first():
    owner = Owner(topology_aware=True)
    channel = owner.channel()
    copy = owner.promote(origin_with(3).topic())
    channel.paused = True
    far, far_outlet = owner.subscribe(channel, rdy=100)
    near, near_outlet = owner.subscribe(channel, rdy=100)
    near.nearness, far.nearness = 0, 2
    channel.paused = False
    owner.broker.serve(channel)
    owner.turn()

    assert len(bodies(near_outlet)) >= len(bodies(far_outlet))
    assert copy.channels["c"].zones[0] >= 2
