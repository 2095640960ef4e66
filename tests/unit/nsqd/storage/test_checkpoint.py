import pytest

from nsqd.engine.channel import Channel
from nsqd.storage import checkpoint
from nsqd.storage.checkpoint import BadCheckpoint
from tests.support.engine import Node


@pytest.fixture
def node():
    return Node()


def filled(state, node, name="c"):
    """A fresh channel that owes what the checkpoint says."""
    channel = Channel("t", name, node.topic().log, 100)
    state.channels[name].fill(channel)
    return channel


def test_a_checkpoint_says_what_is_owed_with_what_is_in_flight_waiting(node):
    channel = node.channel()
    node.publish(*[b"%d" % n for n in range(10)])
    consumer, _ = node.subscribe(channel, rdy=4)
    first = channel.in_flight.lowest()
    channel.finish(first + 1, consumer, node.now_ns)
    channel.requeue(first + 2, consumer, 9_000_000_000, node.now_ns)
    channel.paused = True

    state = checkpoint.decode(checkpoint.encode(node.topic(), clean=True))
    restored = filled(state, node)

    assert (state.next_seq, state.clean, state.channels["c"].paused) == (first + 10, True, True)
    assert sorted((span.start, span.end, span.again) for span in restored.pending) == [
        (first, first + 1, True),
        (first + 3, first + 4, True),
        (first + 4, first + 10, False),
    ]
    assert restored.deferred == [(node.now_ns + 9_000_000_000, first + 2)]
    assert restored.attempts == {first + 2: 1}


def test_the_backlog_and_the_counters_come_back(node):
    node.publish(b"1", b"22")
    topic = node.topic()

    state = checkpoint.decode(checkpoint.encode(topic, clean=False))

    assert state.counters == {"messages": 2, "bytes": 3}
    assert state.backlog.spans == [(topic.log.next_seq - 2, topic.log.next_seq, False)]


def test_ephemeral_channels_are_not_written(node):
    node.channel("c#ephemeral")

    assert checkpoint.decode(checkpoint.encode(node.topic(), clean=True)).channels == {}


@pytest.mark.parametrize(
    "damage", [lambda c: c[:-1], lambda c: c[:20], lambda c: b"", lambda c: b"x" + c[1:]]
)
def test_a_damaged_checkpoint_is_refused(node, damage):
    node.channel()
    node.publish(b"1")
    content = checkpoint.encode(node.topic(), clean=True)

    with pytest.raises(BadCheckpoint):
        checkpoint.decode(damage(content))
