"""Figures of a channel together with the carried logs beside it."""

import pytest
from tests.support.carrying import Carrier

from nsqd.engine import all_logs, draining, withholding
from nsqd.engine.age import Ages
from nsqd.engine.deaths import REQUEUED
from nsqd.engine.unread import Unread
from tests.support.engine import SECOND, Node


@pytest.fixture
def home():
    node = Node()
    node.channel()
    node.publish(*[b"theirs"] * 5)
    node.topic().stage(b"later", node.now_ns, node.now_ns + 100 * SECOND)
    node.broker.dirty[node.topic()] = None
    node.turn()
    return node


@pytest.fixture
def carrier(home):
    node = Carrier()
    node.now_ns += 10 * SECOND
    node.channel()
    node.publish(b"ours", b"ours")
    node.carry(home.topic())
    return node


def test_messages_of_all_logs_are_counted(carrier):
    channel = carrier.channel()
    carrier.subscribe(channel, rdy=4)

    assert all_logs.depth(channel) == 3
    assert all_logs.in_flight(channel) == 4
    assert all_logs.deferred(channel) == 1


def test_what_is_on_its_way_to_the_dead_letters_is_counted(carrier):
    channel = carrier.channel()
    sibling = channel.siblings[0]
    for one in (channel, sibling):
        (first, _), *_ = one.give_up_below(one.end)
        one.dying.add(first, first + 1, REQUEUED)

    assert all_logs.depth(channel) == 2
    assert all_logs.carried_depth(channel) == 2
    assert all_logs.owed_at_most(carrier.topic().carried[0]) == 2


def test_what_is_held_back_of_the_own_log_counts_unless_it_is_held_for_a_taker(carrier):
    channel = carrier.channel()
    carrier.subscribe(channel, rdy=1)
    withholding.withhold(channel, [(0, channel.end)])

    in_flight, carried = all_logs.in_flight(channel), channel.siblings[0].depth
    assert all_logs.depth(channel) + in_flight == 7
    assert all_logs.depth(channel, leaving=True) == carried


def test_what_is_held_back_of_a_carried_log_counts_at_its_home_only(carrier):
    sibling = carrier.channel().siblings[0]
    withholding.withhold(sibling, [(0, sibling.end)])

    assert all_logs.depth(carrier.channel()) == 2


def test_what_is_carried_is_counted_by_itself_as_well(carrier):
    assert all_logs.carried_depth(carrier.channel()) == 6


def test_what_waits_at_the_topics_is_counted(carrier):
    other = Node()
    other.publish(b"early", topic="u")
    carrier.carry(other.topic("u"))

    assert (all_logs.waiting_at(carrier.topic("u")), all_logs.carried_waiting_at(carrier.topic("u"))) == (
        1,
        1,
    )


def test_a_drain_waits_for_what_is_carried(carrier):
    carrier.broker.draining = True
    report = draining.report(carrier.broker, Unread(), carrier.now_ns)

    assert (report["remaining"], report["drained"]) == (8, False)


def test_the_oldest_message_may_be_a_carried_one(carrier):
    published_ns = Ages().oldest_ns(carrier.topic(), carrier.channel(), carrier.now_ns)

    assert published_ns == carrier.now_ns - 10 * SECOND + carrier.broker.wall.offset_ns


def test_a_pause_that_came_with_a_log_is_shown_while_it_holds_messages_back(carrier):
    channel, topic = carrier.channel(), carrier.topic()
    sibling = channel.siblings[0]
    sibling.paused = True

    def shown():
        (one,) = draining.report(carrier.broker, Unread(), carrier.now_ns)["topics"]
        return all_logs.is_paused(channel), one["channels"][0]["paused"]

    assert shown() == (True, True)
    assert not all_logs.is_topic_paused(topic)

    carrier.broker.pause_channel(topic, channel, paused=False)
    assert shown() == (False, False)
    sibling.paused = True
    sibling.empty()
    assert shown() == (False, False)


def test_a_pause_of_a_topic_that_came_with_a_log_is_shown_while_it_holds_messages_back():
    home, carrier = Node(), Carrier()
    home.channel()
    home.broker.pause_topic(home.topic(), paused=True)
    home.publish(b"held back")
    carrier.channel()
    carrier.carry(home.topic())
    topic = carrier.topic()
    assert (topic.paused, all_logs.is_topic_paused(topic)) == (False, True)

    carrier.broker.pause_topic(topic, paused=False)

    assert not all_logs.is_topic_paused(topic)
