import struct

import pytest
from xxhash import xxh3_64_intdigest

from nsqd.engine.backlog import Backlog
from nsqd.engine.state import take_change
from nsqd.log.layout import NewerVersion
from nsqd.log.tail_records import CheckpointPosition
from nsqd.storage import checkpoint
from nsqd.storage.checkpoint import BadCheckpoint
from tests.support.engine import SECOND


def saved(node, serial=1, mark=None):
    """The decoded checkpoint of the topic as it is now."""
    topic = node.topic()
    end = topic.log.next_seq
    return checkpoint.decode(
        checkpoint.encoder(topic, serial, mark or CheckpointPosition(end, 3, end, end))()
    )


def filled(state, node, name="c", offset_ns=0):
    """A fresh backlog that is what the checkpoint says of the channel."""
    backlog = Backlog()
    state.channels[name].fill(backlog, offset_ns)
    return backlog


def test_checkpoint_says_what_is_owed_with_what_is_in_flight_waiting(node):
    channel = node.channel()
    node.publish(*[b"%d" % n for n in range(10)])
    consumer, _ = node.subscribe(channel, rdy=4)
    first = channel.backlog.in_flight.ranges()[0][0]
    channel.finish([first + 1], consumer, node.now_ns)
    channel.requeue(first + 2, consumer, 9_000_000_000, node.now_ns)
    channel.paused = True

    state = saved(node)
    restored = filled(state, node)

    assert (state.checkpoint_position.next, state.channels["c"].paused) == (first + 10, True)
    assert sorted((span.start, span.end, span.redelivered) for span in restored.pending.entries) == [
        (first, first + 1, True),
        (first + 3, first + 4, True),
        (first + 4, first + 10, False),
    ]
    assert list(restored.deferred) == [(node.now_ns + 9_000_000_000, first + 2)]
    assert restored.attempts == {first: 1, first + 2: 1, first + 3: 1}


def test_answers_after_checkpoint_is_begun_do_not_change_its_attempts(node):
    channel = node.channel()
    node.publish(*[b"%d" % n for n in range(10)])
    consumer, _ = node.subscribe(channel, rdy=10)
    first = channel.backlog.in_flight.ranges()[0][0]
    end = node.topic().log.next_seq
    encode = checkpoint.encoder(node.topic(), 1, CheckpointPosition(end, 0, end, end))
    channel.finish([first + 5], consumer, node.now_ns)

    assert filled(checkpoint.decode(encode()), node).attempts == dict.fromkeys(range(first, end), 1)


def test_checkpoint_has_position_and_serial(node):
    node.publish(b"1", b"2")
    end = node.topic().log.next_seq
    node.channel("c").empty()

    state = saved(node, 17, CheckpointPosition(end, 5, end, end + 1, 4))

    assert (state.serial, state.checkpoint_position) == (17, CheckpointPosition(end, 5, end, end + 1, 4))
    assert (state.log_start, state.low_water) == (node.topic().log.log_start, end)


def test_absent_messages_are_remembered_until_commit(node):
    channel = node.channel()
    node.publish(*[b"x"] * 10)
    end = node.topic().log.next_seq
    channel.absent = [(end - 9, end - 7), (end - 3, end - 1)]
    assert saved(node).channels["c"].absent == [(end - 9, end - 7), (end - 3, end - 1)]

    channel.commit(end - 2)

    assert saved(node).channels["c"].absent == [(end - 2, end - 1)]


def test_absent_messages_are_forgotten_when_later_ones_are_finished(node):
    channel = node.channel()
    node.publish(*[b"x"] * 10)
    first, end = channel.backlog.lowest(), node.topic().log.next_seq
    channel.absent = [(first + 1, first + 3), (end - 3, end - 1)]
    consumer, _ = node.subscribe(channel, rdy=10)
    for seq in range(first, first + 5):
        channel.finish([seq], consumer, node.now_ns)

    assert saved(node).channels["c"].absent == channel.absent == [(end - 3, end - 1)]


def test_checkpoint_calls_finished_messages_durable(node):
    channel = node.channel()
    node.publish(*[b"x"] * 10)
    end = node.topic().log.next_seq
    channel.commit(end - 4)

    assert saved(node, mark=CheckpointPosition(end, 0, end - 8, end)).checkpoint_position.synced == end - 4
    assert saved(node, mark=CheckpointPosition(end, 0, end - 2, end)).checkpoint_position.synced == end - 2


def test_backlog_and_counters_come_back(node):
    node.publish(b"1", b"22")
    end = node.topic().log.next_seq
    node.topic().dropped_count = 7

    state = saved(node)

    assert state.counters == {"messages": 2, "bytes": 3, "dropped": 7}
    assert (state.backlog.finished.floor, state.backlog.end) == (end - 2, end)


def test_numbers_that_were_skipped_while_message_is_owed_are_one_run(node):
    channel = node.channel()
    node.publish(b"held")
    end = node.topic().log.next_seq
    day_later = end + 86_400_000_000
    node.topic().skip_to(day_later)
    node.publish(b"next")

    content = checkpoint.encoder(node.topic(), 1, CheckpointPosition(day_later + 1))()
    state = checkpoint.decode(content).channels[channel.name]

    assert len(content) < 4000
    assert state.finished.missing(0, day_later + 1) == [(end - 1, end), (day_later, day_later + 1)]


def test_topic_that_is_paused_or_held_is_so_again(node):
    assert (saved(node).paused, saved(node).awaiting_registration) == (False, False)
    node.broker.pause_topic(node.topic(), paused=True)
    node.broker.set_awaiting_registration(node.topic(), awaiting_registration=True)

    assert (saved(node).paused, saved(node).awaiting_registration) == (True, True)


def test_counters_and_commit_of_channel_come_back(node):
    channel = node.channel()
    node.publish(b"1", b"2")
    consumer, _ = node.subscribe(channel, rdy=1, msg_timeout=1)
    node.advance(1)
    channel.requeue(channel.backlog.in_flight.ranges()[0][0], consumer, 0, node.now_ns)
    channel.commit(channel.backlog.lowest() + 1)
    node.broker.remove_consumer(node.subscribe(channel, rdy=1)[0])
    channel.dropped_count, channel.expired_count, channel.dead_count = 3, 4, 5

    state = saved(node).channels["c"]

    let_go = {"dropped": 3, "expired": 4, "dead": 5}
    assert state.counters == {"messages": 2, "requeued": 1, "returned": 1, "timed_out": 1} | let_go
    assert state.committed == channel.committed > 0


def test_due_times_on_disk_are_those_of_clock_on_wall(node):
    node.channel()
    node.broker.wall.offset_ns = 3_000_000_000
    topic = node.topic()
    topic.stage(b"later", node.now_ns, node.now_ns + 10)
    node.broker.dirty[topic] = None
    node.turn()

    state = saved(node)

    assert state.channels["c"].dues[0] == node.now_ns + 10 + 3_000_000_000
    assert (
        filled(state, node, offset_ns=1_000_000_000).deferred.first_due_ns()
        == node.now_ns + 10 + 2_000_000_000
    )


@pytest.mark.parametrize("bits", [54, 64])
def test_highest_numbers_and_many_attempts_fit(node, bits):
    channel = node.channel()
    top = (1 << bits) - 1
    channel.backlog.extend(top - 1, top, attempts=65_535)

    restored = filled(saved(node), node)

    assert [(span.start, span.end, span.redelivered) for span in restored.pending.entries] == [
        (top - 1, top, True)
    ]
    assert restored.attempts == {top - 1: 65_535}


# --- damage


def content_of(node):
    node.channel()
    node.publish(b"1")
    return checkpoint.encoder(node.topic(), 1, CheckpointPosition())()


def test_checkpoint_cut_anywhere_is_refused(node):
    content = content_of(node)

    for size in range(len(content)):
        with pytest.raises(BadCheckpoint):
            checkpoint.decode(content[:size])


def test_checkpoint_with_wrong_byte_anywhere_is_refused(node):
    content = content_of(node)

    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(BadCheckpoint):
            checkpoint.decode(bytes(damaged))


@pytest.mark.parametrize("content", [b"{", b"{}", b"{" + b"x" * 100, bytes(4096), b"x" * 4096])
def test_bytes_without_checkpoint_are_refused(content):
    with pytest.raises(BadCheckpoint):
        checkpoint.decode(content)


def sealed(head, rest):
    """A record whose checksum is right."""
    body = head + struct.pack("<Q", len(rest)) + rest
    return body + struct.pack("<Q", xxh3_64_intdigest(body))


@pytest.mark.parametrize(("at", "value"), [(8, 4), (10, 0x0001), (10, 0x0080)])
def test_checkpoint_of_newer_version_is_not_taken_for_damaged_one(node, at, value):
    content = bytearray(content_of(node)[:-8])
    struct.pack_into("<H", content, at, value)

    with pytest.raises(NewerVersion):
        checkpoint.decode(sealed(bytes(content[:16]), bytes(content[24:])))


@pytest.mark.parametrize(
    "rest", [b"\n", b"7\n", b"[]\n", b"{}\n", b'{"next":1,"notes":2,"synced":3,"end":4}\n', b"\xff\n"]
)
def test_header_that_makes_no_sense_is_refused(node, rest):
    with pytest.raises(BadCheckpoint):
        checkpoint.decode(sealed(content_of(node)[:16], rest))


def test_arrays_that_are_shorter_than_header_says_are_refused(node):
    node.subscribe(node.channel(), rdy=1)
    content = content_of(node)[:-8]

    with pytest.raises(BadCheckpoint, match="cut short"):
        checkpoint.decode(sealed(content[:16], content[24:-8]))


# --- added to one before


def test_added_record_without_whole_one_is_refused(node):
    node.channel()

    with pytest.raises(BadCheckpoint):
        checkpoint.decode(checkpoint.encoder(node.topic(), 1, CheckpointPosition(), {})())


def test_channel_made_again_has_nothing_of_the_one_that_was_deleted(node):
    channel = node.channel()
    node.publish(b"1", b"2")
    node.subscribe(channel, rdy=2)
    chain = checkpoint.encoder(node.topic(), 1, CheckpointPosition())()
    node.broker.delete_channel(node.topic(), "c")
    redelivered = node.channel().backlog
    node.publish(b"3")

    state = checkpoint.decode(
        chain + checkpoint.encoder(node.topic(), 2, CheckpointPosition(), {})()
    ).channels["c"]

    assert list(state.tries) == []
    assert (state.finished.floor, state.end) == (redelivered.lowest(), redelivered.end)


def test_added_record_is_proportional_to_changes(node):
    channel = node.channel()
    topic = node.topic()
    for delay_ns in range(1, 2000):
        topic.stage(b"x", node.now_ns, node.now_ns + delay_ns * SECOND)
    node.broker.dirty[topic] = None
    node.turn()
    before = take_change(channel.backlog, channel)
    node.publish(b"x")

    added = checkpoint.encoder(
        node.topic(), 2, CheckpointPosition(), {channel.backlog: take_change(channel.backlog, channel)}
    )()

    assert before.journals[0].dues
    assert len(added) < 700 < len(checkpoint.encoder(node.topic(), 1, CheckpointPosition())()) // 50
