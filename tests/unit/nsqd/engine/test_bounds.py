import pytest

from nsqd.engine.bounds import Full, excess
from nsqd.engine.settings import NOTHING, Settings
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
    return excess(topic.channels["c"].backlog, Settings(**said), topic.log, count, size)


def publish(node, *bodies):
    node.publish(*bodies, topic="t#ephemeral")


def test_unbounded_backlog_has_no_excess(node):
    publish(node, b"1", b"2")

    assert beyond(node, 100) == 0


def test_excess_counts_incoming_messages(node):
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


def test_heavy_message_is_weighed_though_it_is_one_of_many(node):
    publish(node, *[b"x"] * 100)
    assert beyond(node, max_bytes=4000) == 0

    publish(node, b"x" * 10_000)

    assert beyond(node, max_bytes=4000) > 0


# --- while the topic holds its messages back


def bound(node, **said):
    """Bound all channels, and no topic."""
    node.broker.apply(lambda _topic, channel: Settings(**said) if channel else NOTHING)


def pause(broker, topic, on):
    broker.pause_topic(topic, paused=on)


def hold(broker, topic, on):
    broker.set_awaiting_registration(topic, awaiting_registration=on)


def accepted(node, body=b"x", topic="t", most=1000):
    """How many messages are taken before one is refused."""
    for count in range(most):
        try:
            node.publish(body, topic=topic)
        except Full:
            return count
    return most


@pytest.mark.parametrize("keep_back", [pause, hold])
def test_channel_of_paused_topic_counts_messages_that_topic_holds(keep_back):
    node = Node()
    channel = node.channel()
    bound(node, max_depth=10)
    node.publish(*[b"before"] * 4)
    keep_back(node.broker, node.topic(), True)

    assert accepted(node) == 6
    keep_back(node.broker, node.topic(), False)
    node.turn()
    assert channel.backlog.pending.count == 10
    assert accepted(node) == 0


def test_staged_messages_count_once_while_topic_is_paused():
    node = Node()
    node.channel()
    bound(node, max_depth=10)
    pause(node.broker, node.topic(), True)
    node.publish(*[b"stored"] * 3)

    for _ in range(7):
        node.topic().stage(b"staged", node.now_ns)
    with pytest.raises(Full):
        node.topic().stage(b"staged", node.now_ns)


@pytest.mark.parametrize("before", [0, 4])
@pytest.mark.parametrize("max_bytes", range(900, 1101, 10))
def test_bound_of_bytes_refuses_the_same_message_at_paused_topic(before, max_bytes):
    taken = []
    for paused in (False, True):
        node = Node()
        node.channel("c", topic="t#ephemeral")
        bound(node, max_bytes=max_bytes)
        publish(node, *[b"x" * (100 - HEAD)] * before)
        pause(node.broker, node.topic("t#ephemeral"), paused)
        taken.append(accepted(node, b"x" * (100 - HEAD), "t#ephemeral"))

    assert taken[0] == taken[1]
    assert 8 - before <= taken[0] <= 11 - before


def test_deferred_message_that_topic_holds_back_counts():
    node = Node()
    node.channel()
    bound(node, max_depth=2)
    pause(node.broker, node.topic(), True)
    node.topic().stage(b"later", node.now_ns, node.now_ns + 1000)
    node.publish(b"now")

    assert accepted(node) == 0


def test_channel_made_while_topic_is_paused_counts_topic_backlog():
    node = Node()
    bound(node, max_depth=5)
    pause(node.broker, node.topic(), True)
    assert accepted(node, most=3) == 3

    channel = node.channel()

    assert accepted(node) == 2
    pause(node.broker, node.topic(), False)
    node.turn()
    assert channel.backlog.pending.count == 5


def test_channel_bound_counts_topic_backlog():
    node = Node()
    full, emptied = node.channel("full"), node.channel("emptied")
    bound(node, max_depth=5)
    node.publish(*[b"x"] * 4)
    emptied.empty()
    pause(node.broker, node.topic(), True)

    assert accepted(node) == 1
    full.empty()
    assert accepted(node) == 4


def test_acknowledged_topic_backlog_does_not_count():
    node = Node()
    channel = node.channel()
    bound(node, max_depth=10)
    pause(node.broker, node.topic(), True)
    first = node.topic().log.next_seq
    assert accepted(node) == 10

    node.broker.commit_channel(node.topic(), channel, first + 3)
    assert accepted(node) == 3
    channel.merge_finished([(first + 2, first + 7)], node.topic().log.next_seq)
    assert accepted(node) == 4

    pause(node.broker, node.topic(), False)
    assert channel.backlog.pending.count == 10


def test_paused_topic_whose_channels_drop_their_oldest_takes_all():
    node = Node()
    channel = node.channel()
    bound(node, max_depth=3, drop_oldest=True)
    pause(node.broker, node.topic(), True)

    assert accepted(node, most=10) == 10
    pause(node.broker, node.topic(), False)
    node.turn()
    assert channel.backlog.pending.count == 3
