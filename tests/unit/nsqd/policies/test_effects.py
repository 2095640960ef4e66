import pytest

from nsqd.engine.settings import NOTHING, Settings
from nsqd.log.gaps import CannotRead
from nsqd.policies.effects import keeps_less, would_delete
from tests.support.engine import Node


@pytest.fixture
def node():
    node = Node()
    node.channel("c")
    node.publish(b"1", b"2", b"3")
    return node


def sentences(node, **said):
    """The sentences ten nanoseconds after all messages were published."""
    now_ns = node.now_ns + node.broker.wall.offset_ns + 10
    return list(would_delete(node.broker, lambda _topic, _channel: Settings(**said), now_ns))


def test_bound_that_is_met_deletes_nothing(node):
    assert sentences(node, max_depth=3, drop_oldest=True) == []


def test_bound_that_is_passed_deletes_when_oldest_go(node):
    assert sentences(node, max_depth=1, drop_oldest=True) == [
        "channel t/c would drop the oldest 2 of 3 messages"
    ]
    assert sentences(node, max_depth=1) == []


def test_bound_of_bytes_may_delete():
    node = Node()
    node.channel("c", topic="t#ephemeral")
    node.publish(b"1", b"2", topic="t#ephemeral")

    assert sentences(node, max_bytes=1, drop_oldest=True) == [
        "channel t#ephemeral/c would drop what is more than 1 bytes"
    ]


def test_bytes_that_fit_delete_nothing(node):
    assert sentences(node, max_bytes=1 << 20, drop_oldest=True) == []


def test_life_that_no_message_has_lived_yet_deletes_nothing(node):
    assert sentences(node, ttl_ns=11) == []
    assert len(sentences(node, ttl_ns=10)) == 1


def test_unreadable_message_counts_as_old(node):
    class Unreadable:
        def read(self, seq, end):
            raise CannotRead

        def seek(self, time_ns):
            return 0

        page_start = seek

    log = node.topic().log
    log.release(log.next_seq)
    log.source = Unreadable()

    assert len(sentences(node, ttl_ns=1 << 60)) == 1


def test_equal_bound_would_delete_nothing(node):
    node.broker.apply(lambda _topic, _channel: Settings(max_depth=1, drop_oldest=True))

    assert sentences(node, max_depth=2, drop_oldest=True, max_attempts=3) == []
    assert sentences(node, max_depth=1, max_bytes=5, drop_oldest=True) != []


def test_shorter_life_deletes(node):
    (sentence,) = sentences(node, ttl_ns=5)
    assert sentence == "channel t/c would lose those of 3 messages that are older than the ttl"

    node.broker.apply(lambda _topic, _channel: Settings(ttl_ns=5))
    assert sentences(node, ttl_ns=5) == []
    assert sentences(node, ttl_ns=6) == []
    assert len(sentences(node, ttl_ns=4)) == 1


def test_messages_before_a_first_channel_count_as_well():
    node = Node()
    node.publish(b"1", b"2")

    assert sentences(node, max_depth=1, drop_oldest=True) == ["topic t would drop the oldest 1 of 2 messages"]


def test_keeping_less_of_what_is_finished_deletes(node):
    node.broker.apply(lambda _topic, _channel: Settings(retain_time_ns=5))

    assert sentences(node) == ["topic t would keep less of what is finished"]


@pytest.mark.parametrize(
    ("old", "new", "less"),
    [
        (NOTHING, NOTHING, False),
        (NOTHING, Settings(retain_bytes=1), False),
        (Settings(retain_bytes=1), NOTHING, True),
        (Settings(retain_time_ns=5), Settings(retain_time_ns=4), True),
        (Settings(retain_time_ns=5), Settings(retain_time_ns=5, retain_bytes=9), True),
        (Settings(retain_time_ns=5, retain_bytes=9), Settings(retain_time_ns=5), False),
        (Settings(retain_time_ns=5, retain_bytes=9), Settings(retain_bytes=9), False),
        (Settings(retain_time_ns=5), Settings(retain_bytes=9), True),
    ],
)
def test_two_bounds_hold_each_by_itself(old, new, less):
    assert keeps_less(old, new) is less


def test_messages_of_paused_topic_count_for_its_channels():
    node = Node()
    node.channel("c", topic="t#ephemeral")
    node.broker.pause_topic(node.broker.topics["t#ephemeral"], paused=True)
    node.publish(b"1" * 90, b"2" * 90, topic="t#ephemeral")
    name = "channel t#ephemeral/c"

    assert f"{name} would drop the oldest 1 of 2 messages" in sentences(node, max_depth=1, drop_oldest=True)
    assert f"{name} would drop what is more than 100 bytes" in sentences(
        node, max_bytes=100, drop_oldest=True
    )
    assert not any(name in one for one in sentences(node, max_bytes=10_000, drop_oldest=True))
    assert f"{name} would lose those of 2 messages that are older than the ttl" in sentences(node, ttl_ns=10)
