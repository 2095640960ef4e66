from nsqd.engine.draining import Unread

S = 1_000_000_000


def test_channel_without_consumers_is_unread_since_first_check(node):
    topic = node.broker.topic("t", 0)
    channel = node.broker.channel(topic, "c")
    unread = Unread()
    assert unread.for_ms(channel, 5 * S) == 0

    unread.update(node.broker, 10 * S)
    unread.update(node.broker, 15 * S)

    assert unread.for_ms(channel, 16 * S) == 6000
    assert unread.for_ms(topic, 16 * S) is None


def test_topic_is_unread_until_it_has_channel(node):
    topic = node.broker.topic("t", 0)
    unread = Unread()
    unread.update(node.broker, 10 * S)
    assert unread.for_ms(topic, 12 * S) == 2000

    node.broker.channel(topic, "c")

    assert unread.for_ms(topic, 12 * S) is None


def test_consumer_that_came_and_went_starts_time_again(node):
    unread = Unread()
    session, _ = node.session()
    channel = node.broker.channel(node.broker.topic("t", 0), "c")
    unread.update(node.broker, 10 * S)
    session.receive(b"  V2SUB t c\n", node.now_ns)
    assert unread.for_ms(channel, 12 * S) is None
    unread.update(node.broker, 15 * S)
    session.disconnect()

    assert unread.for_ms(channel, 18 * S) == 0
    unread.update(node.broker, 20 * S)
    assert unread.for_ms(channel, 21 * S) == 1000


def test_unread_forgets_deleted_channels(node):
    unread = Unread()
    topic = node.broker.topic("t", 0)
    unread.update(node.broker, 10 * S)
    node.broker.delete_topic("t")
    unread.update(node.broker, 15 * S)

    assert unread.for_ms(topic, 16 * S) == 0
