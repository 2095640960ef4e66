"""Statistics of a channel together with the promoted copies next to it."""

import pytest

from nsqd.engine import all_logs, draining
from nsqd.engine.age import Ages
from nsqd.engine.dead_letter_queue import REQUEUED
from nsqd.engine.draining import Unread
from tests.support.engine import SECOND, Node
from tests.support.promoted import Owner


@pytest.fixture
def origin():
    node = Node()
    node.channel()
    node.publish(*[b"theirs"] * 5)
    node.topic().stage(b"later", node.now_ns, node.now_ns + 100 * SECOND)
    node.broker.dirty[node.topic()] = None
    node.turn()
    return node


@pytest.fixture
def owner(origin):
    node = Owner()
    node.now_ns += 10 * SECOND
    node.channel()
    node.publish(b"ours", b"ours")
    node.promote(origin.topic())
    return node


def test_messages_of_all_logs_are_counted(owner):
    channel = owner.channel()
    owner.subscribe(channel, rdy=4)

    assert all_logs.depth(channel) == 3
    assert all_logs.in_flight(channel) == 4
    assert all_logs.deferred(channel) == 1


def test_messages_moving_to_dead_letters_are_counted(owner):
    channel = owner.channel()
    sibling = channel.siblings[0]
    for one in (channel.backlog, sibling.backlog):
        ((first, end),) = one.pending.first(1)
        one.discard(one.pending.below(one.end))
        one.dead_letter_queue.add(first, end, REQUEUED)

    assert all_logs.depth(channel) == 2
    assert all_logs.promoted_count(channel) == 2


@pytest.mark.parametrize("which", [0, 1], ids=["own", "promoted"])
def test_withheld_messages_count_only_while_holders_are_asked(owner, which):
    channel = owner.channel()
    one = all_logs.logs_of(channel)[which]
    before, waiting = all_logs.depth(channel), one.backlog.pending.count
    one.backlog.suspend([(0, one.backlog.end)])

    assert all_logs.depth(channel) == before - waiting
    assert all_logs.depth(channel, asks_holders=True) >= before


def test_messages_of_promoted_copies_have_count_of_their_own(owner):
    assert all_logs.promoted_count(owner.channel()) == 6


def test_messages_without_channel_are_counted(owner):
    other = Node()
    other.publish(b"early", topic="u")
    owner.promote(other.topic("u"))

    assert (all_logs.count(owner.topic("u")), all_logs.promoted_count(owner.topic("u"))) == (
        1,
        1,
    )


def test_drain_waits_for_promoted_copies(owner):
    owner.broker.draining = True
    report = draining.report(owner.broker, Unread(), owner.now_ns)

    assert (report["remaining"], report["drained"]) == (8, False)


def test_oldest_message_may_be_of_promoted_copy(owner):
    published_ns = Ages().oldest_ns(owner.topic(), owner.channel(), owner.now_ns)

    assert published_ns == owner.now_ns - 10 * SECOND + owner.broker.wall.offset_ns


def test_pause_of_copys_channel_is_shown_while_messages_wait(owner):
    channel, topic = owner.channel(), owner.topic()
    sibling = channel.siblings[0]
    sibling.paused = True

    def shown():
        (one,) = draining.report(owner.broker, Unread(), owner.now_ns)["topics"]
        return all_logs.is_paused(channel), one["channels"][0]["paused"]

    assert shown() == (True, True)
    assert not all_logs.is_paused(topic)

    owner.broker.pause_channel(topic, channel, paused=False)
    assert shown() == (False, False)
    sibling.paused = True
    sibling.empty()
    assert shown() == (False, False)


def test_pause_of_copys_topic_is_shown_while_messages_wait():
    origin, owner = Node(), Owner()
    origin.channel()
    origin.broker.pause_topic(origin.topic(), paused=True)
    origin.publish(b"held back")
    owner.channel()
    owner.promote(origin.topic())
    topic = owner.topic()
    assert (topic.paused, all_logs.is_paused(topic)) == (False, True)

    owner.broker.pause_topic(topic, paused=False)

    assert not all_logs.is_paused(topic)
