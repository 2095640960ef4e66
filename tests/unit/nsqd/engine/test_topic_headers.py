"""Messages with headers at a topic, and how each kind of consumer gets them."""

import pytest

from nsqd.engine.channel import Consumer
from nsqd.engine.topic import Refused
from nsqd.log.encoder import Batch
from nsqd.log.headers import extension, join, message
from tests.support.engine import SECOND, Outlet

SOME = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


def subscribed(node, channel, *, extended, rdy=100):
    outlet = Outlet()
    consumer = Consumer(outlet, 60 * SECOND, extended=extended)
    channel.subscribe(consumer, 0)
    node.ready(consumer, rdy)
    return consumer, outlet


def store(node, topic):
    node.broker.dirty[topic] = None
    node.turn()


def test_messages_behind_one_with_headers_join_its_block(node):
    topic = node.topic()
    topic.stage(b"1", node.now_ns)
    topic.stage(b"2", node.now_ns, extension=extension(SOME))
    topic.stage(b"3", node.now_ns)
    topic.stage(b"4", node.now_ns, extension=extension({"a": "b"}))
    blocks = list(topic.staged())

    assert [(len(block), block.has_headers) for block in blocks] == [(1, False), (3, True)]
    assert [message(blocks[1], seq) for seq in range(blocks[1].first, blocks[1].next)] == [
        (SOME, b"2"),
        ({}, b"3"),
        ({"a": "b"}, b"4"),
    ]


def test_deferred_messages_keep_their_headers(node):
    channel, topic = node.channel(), node.topic()
    due_ns = node.now_ns + SECOND
    topic.stage(b"plain", node.now_ns, due_ns)
    topic.stage(b"later", node.now_ns, due_ns, extension(SOME))
    topic.stage(b"with the one before", node.now_ns, due_ns)
    blocks = list(topic.staged())
    assert [(len(block), block.has_headers, block.due_ns) for block in blocks] == [
        (1, False, due_ns),
        (2, True, due_ns),
    ]
    store(node, topic)
    _, outlet = subscribed(node, channel, extended=True)

    node.advance(2)

    assert [body for _, _, body in outlet.taken()] == [
        b"\0plain",
        join(SOME, b"later"),
        b"\0with the one before",
    ]


@pytest.mark.parametrize("extended", [True, False])
def test_consumers_get_messages_of_their_kind(node, extended):
    channel, topic = node.channel(), node.topic()
    topic.stage(b"1", node.now_ns)
    topic.stage(b"2", node.now_ns, extension=extension(SOME))
    topic.stage(b"3", node.now_ns)
    store(node, topic)
    topic.stage(b"4", node.now_ns)
    store(node, topic)

    _, outlet = subscribed(node, channel, extended=extended)

    got = [body for _, _, body in outlet.taken()]
    assert got == ([b"\x001", join(SOME, b"2"), b"\x003", b"\x004"] if extended else [b"1", b"2", b"3", b"4"])


@pytest.mark.parametrize("extended", [True, False])
def test_message_that_comes_back_has_its_headers_and_its_attempts(node, extended):
    channel, topic = node.channel(), node.topic()
    topic.stage(b"2", node.now_ns, extension=extension(SOME))
    store(node, topic)
    first, _ = subscribed(node, channel, extended=not extended)
    channel.unsubscribe(first)

    _, outlet = subscribed(node, channel, extended=extended)

    assert [(attempts, body) for _, attempts, body in outlet.taken()] == [
        (2, join(SOME, b"2") if extended else b"2")
    ]


def test_headers_are_no_bytes_of_bodies(node):
    topic = node.topic()
    topic.stage(b"12345", node.now_ns, extension=extension(SOME))
    topic.stage(b"67", node.now_ns)
    store(node, topic)
    bodies = [join(SOME, b"123"), join({}, b"4")]
    topic.stage_batch(Batch(bodies, has_headers=True, extension_bytes=len(extension(SOME)) + 1), node.now_ns)
    store(node, topic)
    topic.stage(b"lost", node.now_ns, extension=extension(SOME))
    topic.abandon()
    topic.stage(b"8", node.now_ns)
    store(node, topic)

    assert topic.message_bytes == 5 + 2 + 3 + 1 + 1


class Full:
    """A bound that admits *room* messages."""

    def __init__(self, room):
        self.room = room
        self.asked = []

    def admit(self, count, size):
        self.asked.append((count, size))
        if count > self.room:
            raise Refused("topic is full")
        self.room -= count


def test_whatever_is_staged_bound_is_asked_first(node):
    topic = node.topic()
    bound = Full(3)
    topic.bind(bound)
    topic.stage(b"1", node.now_ns)
    with pytest.raises(Refused, match="topic is full"):
        topic.stage_batch(Batch([b"22"] * 3), node.now_ns)
    topic.stage_batch(Batch([b"3"]), node.now_ns)
    topic.stage(b"4", node.now_ns, node.now_ns + SECOND)
    with pytest.raises(Refused, match="topic is full"):
        topic.stage(b"5", node.now_ns, extension=extension({}))

    assert sum(map(len, topic.staged())) == 3
    assert bound.asked == [(1, 1), (3, 6), (1, 1), (1, 1), (1, 2)]


def test_bound_holds_from_one_block_to_the_next_until_it_is_taken_off(node):
    topic = node.topic()
    topic.bind(Full(1))
    topic.stage(b"1", node.now_ns)
    store(node, topic)
    with pytest.raises(Refused):
        topic.stage(b"2", node.now_ns)

    topic.bind(None)
    topic.stage(b"2", node.now_ns)

    assert sum(map(len, topic.staged())) == 1
