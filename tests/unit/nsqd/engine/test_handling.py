import pytest

from nsqd.engine import replay
from nsqd.engine.message_status import StatusSnapshot
from nsqd.engine.state import take_change
from tests.support.engine import SECOND, Node


@pytest.fixture
def first(node, channel):
    """Publish five messages and one deferred for nine seconds; returns the first sequence."""
    first = node.topic().log.next_seq
    node.publish(b"a", b"b", b"c", b"d", b"e")
    node.topic().stage(b"f", node.now_ns, due_ns=node.now_ns + 9 * SECOND)
    node.publish()
    return first


@pytest.fixture
def consumer(node, channel, first):
    consumer, _ = node.subscribe(channel, rdy=2)
    node.ready(consumer, 0)
    return consumer


def states(node, channel, first):
    found = StatusSnapshot(channel, node.topic().backlog, range(first, first + 6)).resolve()
    return "".join(one.state.value[0] for one in found)


def finish(node, channel, *seqs):
    return node.broker.finish_messages(node.topic(), channel, seqs)


def defer(node, channel, *seqs, seconds=0):
    return node.broker.requeue_messages(node.topic(), channel, seqs, seconds * SECOND, node.now_ns)


def test_messages_are_finished_wherever_they_are(node, channel, first, consumer):
    assert states(node, channel, first) == "iiwwwd"

    assert finish(node, channel, first, first + 3, first + 5, first - 1, first + 99) == 3

    assert states(node, channel, first) == "fiwfwf"
    assert (
        channel.backlog.pending.count,
        channel.backlog.deferred.count,
        channel.backlog.in_flight.count,
    ) == (2, 0, 1)
    assert consumer.in_flight == 1


def test_consumer_that_finishes_what_was_taken_from_it_is_told(node, channel, first, consumer):
    finish(node, channel, first)

    assert [index for index, _ in channel.finish([first], consumer, node.now_ns)] == [0]


def test_finished_messages_are_not_counted_as_handled(node, channel, first):
    assert finish(node, channel, first) == 1
    assert finish(node, channel, first) == 0


def test_message_in_flight_waits_again_behind_the_others_and_was_delivered(node, channel, first, consumer):
    assert defer(node, channel, first) == 1

    assert states(node, channel, first) == "wiwwwd"
    assert channel.backlog.attempts == {first: 1}
    assert [span.start for span in channel.backlog.pending.entries] == [first + 2, first]
    assert consumer.in_flight == 1


def test_message_is_put_off_and_comes_then(node, channel, first, consumer):
    defer(node, channel, first, first + 2, seconds=5)

    assert states(node, channel, first) == "didwwd"
    node.advance(6)
    assert states(node, channel, first) == "wiwwwd"
    assert channel.backlog.attempts == {first: 1}


def test_deferred_message_is_sent_now_and_not_a_second_time(node, channel, first):
    defer(node, channel, first + 5)

    assert states(node, channel, first) == "wwwwww"
    assert channel.backlog.attempts == {}
    node.advance(10)
    assert channel.backlog.pending.count == 6


def test_operator_leaves_backlog_of_paused_topic(node, channel):
    node.broker.pause_topic(node.topic(), paused=True)
    first = node.topic().log.next_seq
    node.publish(b"a")

    assert finish(node, channel, first) == 0
    assert defer(node, channel, first, seconds=1) == 0


def test_notes_do_the_same_once_and_twice(node, channel, first):
    other = Node()
    redelivered = other.channel()
    other.topic().skip_to(first)
    other.publish(b"a", b"b", b"c", b"d", b"e")
    other.topic().stage(b"f", other.now_ns, due_ns=other.now_ns + 9 * SECOND)
    other.publish()
    finish(node, channel, first, first + 1)
    defer(node, channel, first + 2, seconds=4)
    defer(node, channel, first + 5)

    for _ in range(2):
        for note in node.topic()._notes:
            replay.apply(other.topic(), note)
        redelivered.backlog.release_due(other.now_ns)
        assert states(other, redelivered, first) == states(node, channel, first) == "ffdwww"
        assert sorted(redelivered.backlog.deferred) == sorted(channel.backlog.deferred)
        assert redelivered.backlog.attempts == channel.backlog.attempts == {}


def test_checkpoint_knows_that_message_was_sent(node, channel, first):
    """The checkpoint gives it a due time that has passed, so after a start it is delivered immediately."""
    take_change(channel.backlog, channel)

    defer(node, channel, first + 5)

    dues = take_change(channel.backlog, channel).journals[0].dues
    assert list(dues) == [node.now_ns, first + 5, first + 6]
