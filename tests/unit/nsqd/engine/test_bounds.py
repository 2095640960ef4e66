import pytest

from nsqd.engine.settings import NOTHING, Settings
from nsqd.engine.weight import excess
from tests.support.engine import Node

HEAD = 34


@pytest.fixture
def node():
    node = Node()
    # An ephemeral topic: its log is in memory only, and knows the sizes of its messages.
    node.channel("c", topic="t#ephemeral")
    return node


def beyond(node, count=0, size=0, **said):
    topic = node.topic("t#ephemeral")
    return excess(topic.channels["c"], Settings(**said), topic.log, count, size)


def publish(node, *bodies):
    node.publish(*bodies, topic="t#ephemeral")


def test_without_a_bound_there_is_never_too_much(node):
    publish(node, b"1", b"2")

    assert excess(node.topic("t#ephemeral").channels["c"], NOTHING, node.topic("t#ephemeral").log, 100) == 0


def test_what_is_about_to_come_counts(node):
    publish(node, b"1", b"2")

    assert beyond(node, max_depth=2) == 0
    assert beyond(node, max_depth=1) == 1
    assert beyond(node, 3, max_depth=2) == 3


def test_bytes_are_counted_in_messages_of_usual_size(node):
    publish(node, *[b"x" * (100 - HEAD)] * 10)

    assert beyond(node, max_bytes=1000) == 0
    assert beyond(node, max_bytes=999) == 1
    assert beyond(node, max_bytes=700) == 3
    assert beyond(node, 1, 100, max_bytes=1000) == 1


def test_a_heavy_message_is_weighed_though_it_is_one_of_many(node):
    publish(node, *[b"x"] * 100)
    assert beyond(node, max_bytes=4000) == 0

    publish(node, b"x" * 10_000)

    assert beyond(node, max_bytes=4000) > 0
