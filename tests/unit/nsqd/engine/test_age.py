import pytest

from nsqd.engine.age import Ages
from nsqd.log.gaps import CannotRead
from nsqd.log.tail import MessageLog
from tests.support.engine import SECOND


class RecoveredMessages:
    """All messages of a topic, as if on the disk; counts how often they are read."""

    def __init__(self, log):
        self._log = log
        self.count = 0
        self.fails = False

    def read(self, seq, end):
        self.count += 1
        if self.fails:
            raise CannotRead("no")
        return self._log.read(seq, end)


def stored(topic):
    """Move all messages of the topic out of memory; returns where they are read from."""
    source = RecoveredMessages(topic.log)
    topic.log = MessageLog(source, topic.log.next_seq, 0)
    return source


@pytest.fixture
def ages():
    return Ages()


def oldest(ages, node, channel):
    return ages.oldest_ns(node.topic(), channel, node.now_ns)


def test_empty_backlog_has_no_age(node, ages):
    assert oldest(ages, node, node.channel()) == 0


def test_oldest_that_is_owed_counts_wherever_it_is(node, channel, ages):
    began_ns = node.now_ns
    node.publish(b"a")
    node.advance(5)
    node.publish(b"b")
    assert oldest(ages, node, channel) == began_ns

    consumer, outlet = node.subscribe(channel, rdy=1)
    assert oldest(ages, node, channel) == began_ns
    node.finish(consumer, outlet.taken()[0][0])
    assert oldest(ages, node, channel) == began_ns + 5 * SECOND


def test_topic_backlog_counts_in_age(node, channel, ages):
    node.broker.pause_topic(node.topic(), paused=True)
    node.publish(b"a")

    assert oldest(ages, node, channel) == node.now_ns


def test_message_is_read_once_however_often_somebody_asks(node, channel, ages):
    node.publish(b"a")
    disk = stored(node.topic())

    assert {oldest(ages, node, channel) for _ in range(10)} == {node.now_ns}
    assert disk.count == 1


def test_so_many_are_read_in_a_second_and_the_others_are_taken_for_older(node, ages):
    channels = [node.channel(f"c{n}") for n in range(150)]
    began_ns = node.now_ns
    node.publish(b"a")
    node.advance(1)
    node.publish(b"b")
    disk = stored(node.topic())
    assert {oldest(ages, node, channel) for channel in channels} == {began_ns}
    disk.count = 0
    for channel in channels:
        channel.commit(channel.backlog.lowest() + 1)

    told = [oldest(ages, node, channel) for channel in channels]

    assert disk.count == 100
    assert told == [began_ns + SECOND] * 100 + [began_ns] * 50
    node.advance(1)
    assert {oldest(ages, node, channel) for channel in channels} == {began_ns + SECOND}


def test_unreadable_message_keeps_its_age(node, channel, ages):
    node.publish(b"a", b"b")
    disk = stored(node.topic())
    told = oldest(ages, node, channel)
    channel.commit(channel.backlog.lowest() + 1)
    disk.fails = True

    assert oldest(ages, node, channel) == told


def test_deleted_channels_are_forgotten(node, channel, ages):
    node.publish(b"a")
    oldest(ages, node, channel)
    node.broker.delete_channel(node.topic(), "c")

    ages.forget_deleted()

    assert not ages._oldest
