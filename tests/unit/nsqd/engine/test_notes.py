"""Notes about a topic are applied again after a restart; applying a note twice changes nothing."""

import json

import pytest

from nsqd.engine import notes, replay
from nsqd.engine.notes import BadNote
from nsqd.engine.state import take_change
from nsqd.log.encoder import Batch
from tests.support.engine import SECOND, Node


class Twin:
    """A topic that gets only the notes and messages of another topic, as after a crash."""

    def __init__(self, node):
        self.node = Node()
        self.topic = self.node.topic()
        self.topic.skip_to(node.topic().log.next_seq)
        self.source = node

    def learn(self, times=1):
        """Apply what the other topic has staged; then let the other topic store it."""
        topic = self.source.topic()
        noted = list(topic.staged_notes())
        for _ in range(times):
            for note in noted:
                replay.apply(self.topic, note)
        for block in topic.staged():
            for pending in self.topic.backlogs():
                pending.extend(block.first, block.next, block.due_ns)
            self.topic.log.next_seq = block.next
        self.source.turn()


def state(topic):
    """The state that survives a restart: what each channel and the topic owe, and which are paused."""
    return {
        owner: (
            sorted(backlog.pending.ranges()),
            sorted(backlog.deferred),
            dict(backlog.attempts),
            topic.channels[owner].paused if owner else topic.paused,
        )
        for owner, backlog in [("", topic.backlog), *((n, c.backlog) for n, c in topic.channels.items())]
    } | {"held": topic.awaiting_registration}


@pytest.fixture
def twin(node):
    return Twin(node)


@pytest.mark.parametrize("times", [1, 2])
def test_channel_made_with_stored_ranges_has_them_after_replay(node, twin, times):
    topic = node.topic()
    node.broker.channel(topic, "first")
    for body in (b"1", b"2", b"3"):
        topic.stage(body, node.now_ns)
    node.broker.dirty[topic] = None
    twin.learn()
    end = topic.log.next_seq
    channel = node.broker.channel(topic, "later", [(end - 3, end - 2)])
    twin.learn(times)

    later = twin.topic.channels["later"]
    assert later.backlog.unfinished(0, end) == [(end - 3, end - 2)]
    assert later.absent == channel.absent == [(end - 2, end)]
    assert state(twin.topic) == state(topic)


@pytest.mark.parametrize("times", [1, 2])
def test_notes_replayed_on_another_topic_give_the_same_state(node, twin, times):
    broker, topic = node.broker, node.topic()
    steps = [
        lambda: topic.stage(b"before any channel", node.now_ns),
        lambda: broker.channel(topic, "a"),
        lambda: topic.stage(b"1", node.now_ns),
        lambda: broker.channel(topic, "b"),
        lambda: broker.pause_channel(topic, topic.channels["b"], paused=True),
        lambda: topic.stage(b"later", node.now_ns, node.now_ns + SECOND),
        lambda: broker.pause_topic(topic, paused=True),
        lambda: topic.stage(b"held back", node.now_ns),
        lambda: broker.empty_topic(topic),
        lambda: topic.stage(b"held back again", node.now_ns),
        lambda: broker.pause_topic(topic, paused=False),
        lambda: broker.commit_channel(topic, topic.channels["a"], topic.log.next_seq - 1),
        lambda: broker.set_awaiting_registration(topic, awaiting_registration=True),
        lambda: topic.stage(b"for c too", node.now_ns),
        lambda: broker.channel(topic, "c"),
        lambda: broker.set_awaiting_registration(topic, awaiting_registration=False),
        lambda: broker.empty_channel(topic, topic.channels["b"]),
        lambda: broker.pause_channel(topic, topic.channels["b"], paused=False),
        lambda: broker.delete_channel(topic, "a"),
        lambda: broker.channel(topic, "a"),
        lambda: topic.stage(b"last", node.now_ns),
    ]
    for number, step in enumerate(steps):
        step()
        broker.dirty[topic] = None
        twin.learn(times)
        assert state(twin.topic) == state(topic), number


@pytest.mark.parametrize("times", [1, 2])
def test_empty_note_keeps_messages_of_lost_earlier_note(node, twin, times):
    broker, topic = node.broker, node.topic()
    broker.channel(topic, "a")
    broker.pause_topic(topic, paused=True)
    topic.stage(b"held back", node.now_ns)
    broker.dirty[topic] = None
    twin.learn()
    # A power cut loses this note, and not the later ones.
    broker.pause_topic(topic, paused=False)
    node.turn()
    broker.pause_topic(topic, paused=True)
    topic.stage(b"held back again", node.now_ns)
    broker.dirty[topic] = None
    twin.learn()

    broker.empty_topic(topic)
    twin.learn(times)

    end = topic.log.next_seq
    assert topic.channels["a"].backlog.unfinished(0, end) == [(end - 2, end - 1)]
    assert twin.topic.backlog.unfinished(0, end) == [(end - 2, end - 1)]


def test_emptying_topic_at_which_nothing_waits_is_not_noted(node):
    broker, topic = node.broker, node.topic()
    broker.channel(topic, "a")
    node.publish(b"1")

    broker.empty_topic(topic)

    assert list(topic.staged_notes()) == []


def test_message_that_came_back_with_delay_is_deferred_with_its_attempts(node, channel, twin):
    node.topic().stage_batch(Batch([b"1", b"2", b"3"]), node.now_ns)
    node.broker.dirty[node.topic()] = None
    twin.learn()
    consumer, _ = node.subscribe(channel, rdy=3)
    second = channel.backlog.in_flight.ranges()[0][0] + 1
    channel.requeue(second, consumer, 5 * SECOND, node.now_ns)
    node.broker.defer(channel, second, node.now_ns + 5 * SECOND)

    for _ in range(2):
        note = node.topic().staged_notes()[-1]
        replay.apply(twin.topic, note)
        restored = twin.topic.channels["c"].backlog
        assert restored.pending.ranges() == [
            (second - 1, second),
            (second + 1, second + 2),
        ]
        assert list(restored.deferred) == [(node.now_ns + 5 * SECOND, second)]
        assert restored.attempts == {second: 1}
        assert restored.pending.count == 2


def test_message_that_came_back_twice_has_later_due_time(node, channel):
    channel.backlog.reset(10)
    channel.backlog.extend(10, 12)
    topic = node.topic()
    for due in (100, 200):
        replay.apply(topic, notes.encode(notes.DEFER, "c", messages=[[10, due, 3]]))

    assert list(channel.backlog.deferred) == [(200, 10)]
    assert (channel.backlog.pending.count, channel.backlog.attempts) == (1, {10: 3})


def test_message_that_was_finished_is_not_deferred_by_old_note(node, channel):
    channel.backlog.extend(11, 12)

    replay.apply(node.topic(), notes.encode(notes.DEFER, "c", messages=[[10, 100, 1]]))

    assert (list(channel.backlog.deferred), channel.backlog.attempts, channel.backlog.pending.count) == (
        [],
        {},
        1,
    )


def test_due_times_in_notes_are_those_of_clock_on_wall(node, channel):
    channel.backlog.reset(10)
    channel.backlog.extend(10, 11)
    topic = node.topic()
    topic.staged_notes().clear()
    topic.wall.offset_ns = 7
    topic.note_requeued(channel, 10, 100)
    (note,) = topic.staged_notes()
    topic.wall.offset_ns = 1

    replay.apply(topic, note)

    assert list(channel.backlog.deferred) == [(106, 10)]


def test_note_on_channel_that_is_gone_is_passed_over(node):
    topic = node.topic()
    for what in (notes.DELETE, notes.PAUSE, notes.UNPAUSE, notes.EMPTY, notes.DEFER, notes.COMMIT):
        replay.apply(topic, notes.encode(what, "gone", messages=[[1, 2, 3]], sequence=5))

    assert topic.channels == {}


def test_making_channel_that_is_there_changes_nothing(node, channel):
    channel.backlog.reset(10)
    channel.backlog.extend(10, 20)

    replay.apply(node.topic(), notes.encode(notes.CREATE, "c"))

    assert node.topic().channels["c"] is channel
    assert channel.backlog.pending.count == 10


def test_ephemeral_channel_leaves_no_note(node):
    topic, ephemeral = node.topic(), node.topic("e#ephemeral")
    topic.staged_notes().clear()
    channel = node.channel("c#ephemeral")
    node.broker.pause_channel(topic, channel, paused=True)
    topic.note_requeued(channel, 1, 2)
    node.broker.channel(ephemeral, "c")
    node.broker.pause_topic(ephemeral, paused=True)

    assert (topic.staged_notes(), ephemeral.staged_notes()) == ([], [])


def test_notes_that_could_not_be_written_wait_for_the_next_write(node):
    topic = node.topic()
    node.broker.pause_topic(topic, paused=True)
    before = list(topic.staged_notes())
    topic.stage(b"refused", node.now_ns)

    topic.abandon()

    assert (topic.staged(), topic.staged_notes()) == ([], before)
    topic.commit()
    assert topic.staged_notes() == []


def test_refused_publish_leaves_notes_of_other_clients(node, channel):
    node.publish(b"1")
    topic, consumer = node.topic(), node.subscribe(channel, rdy=1)[0]
    node.broker.pause_channel(topic, channel, paused=True)
    channel.requeue(channel.backlog.in_flight.ranges()[0][0], consumer, 5 * SECOND, node.now_ns)
    node.broker.defer(channel, 1, node.now_ns + 5 * SECOND)
    topic.stage_for(channel.name, Batch([b"refused"]), node.now_ns)

    topic.refuse()

    assert topic.staged() == []
    assert [json.loads(note)["note"] for note in topic.staged_notes()] == ["pause", "defer"]


def test_delays_that_could_not_be_noted_are_left_to_the_next_checkpoint(node, channel):
    node.publish(b"1", b"2")
    topic, consumer = node.topic(), node.subscribe(channel, rdy=2)[0]
    first = channel.backlog.in_flight.ranges()[0][0]
    node.broker.pause_channel(topic, channel, paused=True)
    node.broker.requeue_messages(topic, channel, [first + 1], 5 * SECOND, node.now_ns)
    kept = [note for note in topic.staged_notes() if b"pause" in note]
    take_change(channel.backlog, channel)
    topic.take_changed()
    channel.requeue(first, consumer, 5 * SECOND, node.now_ns)
    for _ in range(2):
        node.broker.defer(channel, first, node.now_ns + 5 * SECOND)
        topic.staged_notes()
        topic.abandon()

    assert topic.staged_notes() == kept
    assert topic.take_changed()
    (journal,) = take_change(channel.backlog, channel).journals
    assert list(journal.dues) == [node.now_ns + 5 * SECOND, first, first + 1]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"7",
        b"[]",
        b"{}",
        b"\xff",
        b'{"note":"unheard of"}',
        b'{"note":"unheard of","channel":"c"}',
        b'{"note":"defer","channel":"c"}',
        b'{"note":"defer","channel":"c","messages":[7]}',
        b'{"note":"commit","channel":"c","sequence":"x"}',
        b'{"note":["x"]}',
    ],
)
def test_note_that_cannot_be_understood_is_said_to_be_so(node, content):
    node.channel()

    with pytest.raises(BadNote):
        replay.apply(node.topic(), content)
