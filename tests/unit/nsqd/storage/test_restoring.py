"""The messages that a topic says it had, after a start."""

import pytest

from nsqd.engine import finished_ranges, notes
from nsqd.log.encoder import Batch
from nsqd.log.tail_records import RecoveredNote
from nsqd.storage import restoring
from nsqd.storage.topic_log import store_of
from tests.support.engine import SECOND, Node
from tests.support.machine import Machine


@pytest.fixture
def start(tmp_path):
    """A start on the same data path, as after a kill."""
    (tmp_path / "data").mkdir()
    return lambda: Machine(tmp_path / "data", 3)


def ranges(node):
    return finished_ranges.stored_ranges(node.topic())


@pytest.mark.parametrize("checkpointed", [True, False])
def test_starts_leave_ranges_with_unused_numbers_between(start, checkpointed):
    expected = []
    for _ in range(3):
        node = start()
        node.channel()
        node.publish(b"a", b"b")
        end = node.topic().log.next_seq
        expected.append((end - 2, end))
        if checkpointed:
            node.checkpoint(node.topic())

    assert ranges(start()) == expected


def counts(node):
    channels = {one.name: one.message_count for one in node.topic().channels.values()}
    return node.topic().message_count, node.topic().message_bytes, channels


def test_messages_that_came_after_checkpoint_are_counted_again(start):
    node = start()
    node.publish(b"before all channels")
    node.channel("a")
    node.publish(b"1")
    node.checkpoint(node.topic())
    node.publish(b"2", b"3")
    node.channel("b")
    node.publish(b"4")
    node.topic().stage(b"later", node.now_ns, node.now_ns + 100 * SECOND)
    node.topic().stage_for("a", Batch([b"for a alone"]), node.now_ns)
    node.broker.dirty[node.topic()] = None
    node.turn()
    node.broker.pause_topic(node.topic(), paused=True)
    node.publish(b"while paused")
    before = counts(node)
    assert before == (8, 19 + 4 + 5 + 11 + 12, {"a": 7, "b": 2})

    assert counts(start()) == before


def test_messages_that_were_refused_leave_no_hole(start):
    node = start()
    node.publish(b"a")
    node.topic().stage(b"refused", node.now_ns)
    node.topic().abandon()
    node.publish(b"b")
    node.checkpoint(node.topic())
    node.publish(b"c")

    end = node.topic().log.next_seq
    assert ranges(start()) == [(end - 4, end)]


def test_pending_messages_lost_in_power_cut_were_never_stored(start):
    node = start()
    channel = node.channel()
    node.publish(b"a", b"b")
    first = node.topic().log.next_seq - 2
    node.checkpoint(node.topic())
    log = store_of(node.topic()).segments[0].path
    size = log.stat().st_size
    node.publish(b"c", b"d")
    consumer, outlet = node.subscribe(channel, rdy=3)
    node.finish(consumer, outlet.taken()[2][0])
    node.checkpoint(node.topic())
    with log.open("r+b") as file:
        file.truncate(size)

    # The third message is finished on all channels: that is a fact, although the message is lost.
    assert ranges(start()) == [(first, first + 3)]


def test_missing_messages_without_checkpoint_were_never_stored(start):
    """A copy is like this when it was begun after its home had lost its end, and is not yet complete."""
    node = start()
    node.channel()
    node.turn()
    log = store_of(node.topic()).segments[0].path
    size = log.stat().st_size
    node.publish(b"a", b"b")
    node.checkpoint(node.topic())
    with log.open("r+b") as file:
        file.truncate(size)
    node = start()
    node.publish(b"c")
    end = node.topic().log.next_seq
    # No channel that is known here has the lost messages in its backlog; the log names no others.
    node.broker.empty_channel(node.topic(), node.channel())
    node.turn()
    for checkpoint in store_of(node.topic()).segments.folder.glob("checkpoint.*"):
        checkpoint.unlink()

    assert ranges(start()) == [(end - 1, end)]


def test_damaged_messages_were_never_stored(start):
    node = start()
    node.channel()
    node.publish(b"a")
    node.checkpoint(node.topic())
    log = store_of(node.topic()).segments[0].path
    begin = log.stat().st_size
    node.publish(b"b" * 200)
    node.publish(b"c")
    first = node.topic().log.next_seq - 3
    with log.open("r+b") as file:
        file.seek(begin + 100)
        file.write(bytes(64))

    assert ranges(start()) == [(first, first + 1), (first + 2, first + 3)]


def test_generations_outlive_process(start):
    node = start()
    generation = node.channel().generation
    node.publish(b"a")
    sought = node.channel("sought")
    node.broker.seek_channel(node.topic(), sought, node.topic().log.next_seq, [])
    node.turn()
    redelivered = start()
    assert redelivered.channel().generation == generation
    assert redelivered.channel("sought").generation == sought.generation

    redelivered.checkpoint(redelivered.topic())

    assert start().channel().generation == generation


@pytest.mark.parametrize("between", [(), (b"c",)])
def test_channel_made_and_set_back_after_the_last_checkpoint_is_restored(start, between):
    node = start()
    finished = node.channel("finished")
    node.publish(b"a", b"b")
    consumer, outlet = node.subscribe(finished, rdy=3)
    for message in outlet.taken():
        node.finish(consumer, message[0])
    # As if a policy kept them, the files stay with messages that no backlog has.
    first, end = node.topic().log.next_seq - 2, node.topic().log.next_seq
    node.checkpoint(node.topic())
    late = node.channel("late")
    if between:
        node.publish(*between)
    node.broker.seek_channel(node.topic(), late, first, [(first, node.topic().log.next_seq)])
    node.turn()
    pending = late.backlog.unfinished(0, node.topic().log.next_seq)

    assert pending == [(first, end + len(between))]
    assert start().topic().channels["late"].backlog.unfinished(0, end + len(between)) == pending


def test_finished_elsewhere_while_paused_stays_finished_after_kill(start):
    node = start()
    channel = node.channel()
    node.publish(b"a")
    node.checkpoint(node.topic())
    node.broker.pause_topic(node.topic(), paused=True)
    node.publish(b"b")
    end = node.topic().log.next_seq
    channel.merge_finished([(end - 1, end)], end)
    node.topic().note(notes.FINISH, "c", sequences=[(end - 1, end)])
    node.broker.dirty[node.topic()] = None
    node.turn()
    redelivered = start()
    redelivered.broker.pause_topic(redelivered.topic(), paused=False)

    assert redelivered.topic().channels["c"].backlog.unfinished(0, end) == [(end - 2, end - 1)]


def test_deleted_channels_are_remembered(start):
    node = start()
    generation = node.channel().generation
    node.publish(b"a")
    node.broker.delete_channel(node.topic(), "c")
    node.turn()
    redelivered = start()
    assert redelivered.topic().deleted_channels == {"c": generation}

    redelivered.checkpoint(redelivered.topic())

    assert start().topic().deleted_channels == {"c": generation}


def test_note_that_cannot_be_understood_is_one_sentence():
    warnings = []
    restoring.replay_notes(Node().topic(), RecoveredNote(7, b"{"), warnings.append)

    assert len(warnings) == 1
    assert "note 7 cannot be understood" in warnings[0]
