import struct

import pytest
from xxhash import xxh3_64_intdigest

from nsqd.engine.channel import Channel
from nsqd.storage import checkpoint
from nsqd.storage.checkpoint import BadCheckpoint
from nsqd.storage.layout import NewerVersion
from nsqd.storage.recovery import Mark
from tests.support.engine import Node
from tests.support.version1 import version_1_checkpoint


@pytest.fixture
def node():
    return Node()


def saved(node, serial=1, mark=None):
    """What is in the checkpoint of the topic as it is now."""
    topic = node.topic()
    end = topic.log.next_seq
    return checkpoint.decode(checkpoint.encoder(topic, serial, mark or Mark(end, 3, end, end))())


def filled(state, node, name="c", offset_ns=0):
    """A fresh channel that owes what the checkpoint says."""
    channel = Channel("t", name, node.topic().log, 100)
    state.channels[name].fill(channel, offset_ns)
    return channel


def test_a_checkpoint_says_what_is_owed_with_what_is_in_flight_waiting(node):
    channel = node.channel()
    node.publish(*[b"%d" % n for n in range(10)])
    consumer, _ = node.subscribe(channel, rdy=4)
    first = channel.in_flight.lowest()
    channel.finish(first + 1, consumer, node.now_ns)
    channel.requeue(first + 2, consumer, 9_000_000_000, node.now_ns)
    channel.paused = True

    state = saved(node)
    restored = filled(state, node)

    assert (state.mark.next, state.channels["c"].paused) == (first + 10, True)
    assert sorted((span.start, span.end, span.again) for span in restored.pending) == [
        (first, first + 1, True),
        (first + 3, first + 4, True),
        (first + 4, first + 10, False),
    ]
    assert list(restored.deferred) == [(node.now_ns + 9_000_000_000, first + 2)]
    assert restored.attempts == {first + 2: 1}


def test_it_says_how_far_the_log_was_and_which_checkpoint_it_is(node):
    node.publish(b"1", b"2")
    end = node.topic().log.next_seq
    node.channel("c").empty()

    state = saved(node, 17, Mark(end, 5, end, end + 1))

    assert (state.serial, state.mark) == (17, Mark(end, 5, end, end + 1))
    assert (state.kept_from, state.low_water) == (node.topic().log.kept_from, end)


def test_what_everybody_has_finished_counts_as_safe_and_nothing_else(node):
    channel = node.channel()
    node.publish(*[b"x"] * 10)
    end = node.topic().log.next_seq
    channel.commit(end - 4)

    assert saved(node, mark=Mark(end, 0, end - 8, end)).mark.synced == end - 4
    assert saved(node, mark=Mark(end, 0, end - 2, end)).mark.synced == end - 2


def test_the_backlog_and_the_counters_come_back(node):
    node.publish(b"1", b"22")
    end = node.topic().log.next_seq

    state = saved(node)

    assert state.counters == {"messages": 2, "bytes": 3}
    assert state.backlog.spans == [(end - 2, end, False)]


def test_a_topic_that_is_paused_or_held_is_so_again(node):
    assert (saved(node).paused, saved(node).held) == (False, False)
    node.broker.pause_topic(node.topic(), paused=True)
    node.broker.hold_topic(node.topic(), held=True)

    assert (saved(node).paused, saved(node).held) == (True, True)


def test_counters_and_the_commit_of_a_channel_come_back(node):
    channel = node.channel()
    node.publish(b"1", b"2")
    consumer, _ = node.subscribe(channel, rdy=1, msg_timeout=1)
    node.advance(1)
    channel.requeue(channel.in_flight.lowest(), consumer, 0, node.now_ns)
    channel.commit(channel.lowest() + 1)
    node.broker.leave(node.subscribe(channel, rdy=1)[0])

    state = saved(node).channels["c"]

    assert state.counters == {"messages": 2, "requeued": 1, "returned": 1, "timed_out": 1}
    assert state.committed == channel.committed > 0


def test_due_times_on_disk_are_those_of_the_clock_on_the_wall(node):
    node.channel()
    node.broker.wall.offset_ns = 3_000_000_000
    topic = node.topic()
    topic.publish_deferred(b"later", node.now_ns + 10, node.now_ns)
    node.broker.dirty[topic] = None
    node.turn()

    state = saved(node)

    assert [due for due, _ in state.channels["c"].deferred] == [node.now_ns + 10 + 3_000_000_000]
    assert (
        filled(state, node, offset_ns=1_000_000_000).deferred.first_due_ns()
        == node.now_ns + 10 + 2_000_000_000
    )


def test_ephemeral_channels_are_not_written(node):
    node.channel("c#ephemeral")

    assert saved(node).channels == {}


def test_sequences_of_54_bits_and_many_attempts_fit(node):
    channel = node.channel()
    top = (1 << 54) - 1
    channel.put_back(top - 1, top)
    channel.attempts[top - 1] = 65_535

    restored = filled(saved(node), node)

    assert [(span.start, span.end, span.again) for span in restored.pending] == [(top - 1, top, True)]
    assert restored.attempts == {top - 1: 65_535}


# --- damage


def content_of(node):
    node.channel()
    node.publish(b"1")
    return checkpoint.encoder(node.topic(), 1, Mark())()


def test_a_checkpoint_cut_anywhere_is_refused(node):
    content = content_of(node)

    for size in range(len(content)):
        with pytest.raises(BadCheckpoint):
            checkpoint.decode(content[:size])


def test_a_checkpoint_with_a_wrong_byte_anywhere_is_refused(node):
    content = content_of(node)

    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(BadCheckpoint):
            checkpoint.decode(bytes(damaged))


@pytest.mark.parametrize("content", [b"{", b"{}", b"{" + b"x" * 100, bytes(4096), b"x" * 4096])
def test_what_never_was_a_checkpoint_is_refused(content):
    with pytest.raises(BadCheckpoint):
        checkpoint.decode(content)


def sealed(body):
    return body + struct.pack("<Q", xxh3_64_intdigest(body))


@pytest.mark.parametrize(("at", "value"), [(8, 3), (10, 0x0001), (10, 0x0080)])
def test_a_checkpoint_of_a_newer_version_is_not_taken_for_a_damaged_one(node, at, value):
    body = bytearray(content_of(node)[:-8])
    struct.pack_into("<H", body, at, value)

    with pytest.raises(NewerVersion):
        checkpoint.decode(sealed(bytes(body)))


@pytest.mark.parametrize(
    "rest", [b"\n", b"7\n", b"[]\n", b"{}\n", b'{"next":1,"notes":2,"synced":3,"end":4}\n', b"\xff\n"]
)
def test_a_header_that_makes_no_sense_is_refused(node, rest):
    with pytest.raises(BadCheckpoint):
        checkpoint.decode(sealed(content_of(node)[:24] + rest))


def test_arrays_that_are_shorter_than_the_header_says_are_refused(node):
    body = content_of(node)[:-8]

    with pytest.raises(BadCheckpoint, match="cut short"):
        checkpoint.decode(sealed(body[:-16]))


# --- version 1


def test_a_checkpoint_of_version_1_is_understood(node):
    channel = {"name": "c", "paused": True, "spans": 2, "attempts": 1, "deferred": 1, "committed": 1500}
    again = 1 << 63
    content = version_1_checkpoint(
        [channel], [1500, 1600, 1700, 1701 | again, 1700, 4, 99, 1800], paused=True
    )

    state = checkpoint.decode(content)

    assert (state.mark, state.serial, state.kept_from) == (Mark(2000, 0, 2000, 0), 0, 1000)
    assert (state.paused, state.held, state.counters["messages"]) == (True, False, 5)
    owed = state.channels["c"]
    assert (owed.paused, owed.committed) == (True, 1500)
    assert owed.spans == [(1500, 1600, False), (1700, 1701, True)]
    assert (owed.attempts, list(owed.deferred)) == ({1700: 4}, [(99, 1800)])


def test_a_damaged_checkpoint_of_version_1_is_refused():
    content = version_1_checkpoint()

    for at in range(1, len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1
        with pytest.raises(BadCheckpoint):
            checkpoint.decode(bytes(damaged))
