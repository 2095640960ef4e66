from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsqd.engine import replay, seeking
from nsqd.engine.message_status import MessageState, StatusSnapshot
from nsqd.log.disk import Disk
from nsqd.log.tail_records import CheckpointPosition
from nsqd.storage.slots import CheckpointSlots
from tests.support.engine import SECOND, Node


def publish(node, count=10):
    """Publish *count* messages; returns the first sequence."""
    first = node.topic().log.next_seq
    node.publish(*[b"%d" % n for n in range(count)])
    return first


def seek(node, channel, position, kept=None):
    topic = node.topic()
    node.broker.seek_channel(topic, channel, position, kept or [(0, topic.log.next_seq)])


def states(node, channel, first):
    found = StatusSnapshot(channel, node.topic().backlog, range(first, node.topic().log.next_seq)).resolve()
    return [one.state.value[0] for one in found]


def delivered(node, channel):
    consumer, outlet = node.subscribe(channel, rdy=100)
    taken = [node.broker.ids.decode(message_id) for message_id, _, _ in outlet.taken()]
    node.ready(consumer, 0)
    return taken


def test_channel_goes_back_and_is_owed_again_what_it_has_finished(node, channel):
    first = publish(node)
    channel.commit(first + 8)

    seek(node, channel, first + 3)

    assert states(node, channel, first) == ["f"] * 3 + ["w"] * 7
    assert delivered(node, channel) == list(range(first + 3, first + 10))


def test_channel_goes_on_and_is_done_with_what_lies_before(node, channel):
    first = publish(node)

    seek(node, channel, first + 7)

    assert states(node, channel, first) == ["f"] * 7 + ["w"] * 3
    assert channel.backlog.pending.count == 3


def test_seek_makes_only_retained_messages_pending(node, channel):
    first = publish(node)
    channel.commit(first + 10)

    seek(node, channel, first, [(first + 2, first + 4), (first + 6, first + 20)])

    assert states(node, channel, first) == [*"ffwwffwwww"]


def test_seek_keeps_or_finishes_messages_in_flight(node, channel):
    first = publish(node)
    consumer, outlet = node.subscribe(channel, rdy=6)
    ids = [message_id for message_id, _, _ in outlet.taken()]
    node.ready(consumer, 0)

    seek(node, channel, first + 4)

    assert states(node, channel, first) == [*"ffffiiwwww"]
    assert (consumer.in_flight, channel.backlog.in_flight.count, channel.backlog.pending.count) == (2, 2, 4)
    node.finish(consumer, ids[4])
    assert states(node, channel, first) == [*"fffffiwwww"]


def test_seek_keeps_deferred_messages_and_attempts(node, channel):
    first = publish(node, 3)
    node.topic().stage(b"later", node.now_ns, due_ns=node.now_ns + 5 * SECOND)
    node.publish()
    consumer, outlet = node.subscribe(channel, rdy=1)
    (message_id, _, _) = outlet.taken()[0]
    consumer.rdy = 0
    channel.requeue(node.broker.ids.decode(message_id), consumer, 0, node.now_ns)

    seek(node, channel, first)

    assert states(node, channel, first) == [*"wwwd"]
    assert channel.backlog.attempts == {first: 1}
    node.advance(6)
    assert states(node, channel, first) == [*"wwww"]


def test_commit_of_before_does_not_hold_after_seek_back(node, channel):
    """A topic drops held messages below the committed position, so a seek back must lower that position."""
    first = publish(node, 4)
    node.broker.commit_channel(node.topic(), channel, first + 4)

    seek(node, channel, first)

    assert (channel.committed, node.topic().acknowledged(channel)) == (first, first)


def test_place_in_what_topic_holds_back_counts_when_it_flows_again(node, channel):
    first = publish(node, 2)
    node.broker.pause_topic(node.topic(), paused=True)
    publish(node, 4)

    seek(node, channel, first + 4)
    node.broker.pause_topic(node.topic(), paused=False)

    assert delivered(node, channel) == [first + 4, first + 5]


def test_messages_of_paused_topic_come_once_after_seek_among_them(node, channel):
    first = publish(node, 2)
    channel.commit(first + 2)
    node.broker.pause_topic(node.topic(), paused=True)
    publish(node, 4)
    seek(node, channel, first + 4)

    seek(node, channel, first)
    assert channel.backlog.pending.count == 2
    node.broker.pause_topic(node.topic(), paused=False)

    assert sorted(delivered(node, channel)) == list(range(first, first + 6))


def test_note_does_the_same_once_and_twice(node, channel):
    first = publish(node)
    channel.commit(first + 10)
    other = Node()
    redelivered = other.channel()
    other.broker.topics["t"].skip_to(first)
    publish(other)
    redelivered.commit(first + 10)
    seek(node, channel, first + 4)
    note = node.topic()._notes[-1] if node.topic()._notes else None
    assert note is not None

    for _ in range(2):
        replay.apply(other.topic(), note)
        assert states(other, redelivered, first) == states(node, channel, first)


TWO_CHECKPOINTS = [("checkpoint", True)] * 2
DUE_AND_FINISHED = [("deliver", 1), ("requeue", 5), ("time", 6), ("commit", 10)]
DUE_AFTER_CHECKPOINT = [*DUE_AND_FINISHED[:2], ("checkpoint", True), *DUE_AND_FINISHED[2:]]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.integers(1, 5)),
            st.tuples(st.just("defer"), st.integers(1, 5)),
            st.tuples(st.just("seek"), st.integers(0, 20)),
            st.tuples(st.just("finish"), st.integers(0, 20)),
            st.tuples(st.just("deliver"), st.integers(1, 4)),
            st.tuples(st.just("requeue"), st.integers(0, 3)),
            st.tuples(st.sampled_from(["commit", "time"]), st.integers(0, 20)),
            st.tuples(st.just("checkpoint"), st.booleans()),
        ),
        max_size=25,
    )
)
# Finished messages, a message that was deferred and fell due, and messages in flight, all before the seek.
@example([("publish", 10), ("commit", 10), *TWO_CHECKPOINTS, ("seek", 0), *TWO_CHECKPOINTS])
@example([("publish", 10), *TWO_CHECKPOINTS, *DUE_AND_FINISHED, ("seek", 0), *TWO_CHECKPOINTS])
@example([("publish", 10), *TWO_CHECKPOINTS, *DUE_AFTER_CHECKPOINT, ("seek", 0), *TWO_CHECKPOINTS])
@example([("publish", 10), ("deliver", 2), *TWO_CHECKPOINTS, ("seek", 0), *TWO_CHECKPOINTS])
@example([("defer", 1), *TWO_CHECKPOINTS, ("time", 1), ("checkpoint", False)])
@settings(deadline=None)
def test_chain_of_checkpoints_tells_seek_whole(tmp_path_factory, steps):
    """At any moment either file has the backlog, with due times and attempts."""
    folder = tmp_path_factory.mktemp("slots")
    node = Node()
    channel = node.channel()
    topic = node.topic()
    first = topic.log.next_seq
    slots = CheckpointSlots(Disk(), folder)
    consumer, outlet = node.subscribe(channel)
    taken = []
    for what, n in steps:
        if what == "publish":
            publish(node, n)
        elif what == "defer":
            topic.stage(b"x", node.now_ns, due_ns=node.now_ns + n * SECOND)
            node.publish()
        elif what == "seek":
            position = min(first + n, topic.log.next_seq)
            seeking.seek(topic, channel, position, [(first, topic.log.next_seq)])
            taken = [seq for seq in taken if seq >= position]
        elif what == "finish" and taken:
            channel.finish([taken.pop(n % len(taken))], consumer, node.now_ns)
        elif what == "deliver":
            node.ready(consumer, consumer.in_flight + n)
            taken += [node.broker.ids.decode(message_id) for message_id, _, _ in outlet.taken()]
            node.ready(consumer, 0)
        elif what == "requeue" and taken:
            channel.requeue(taken.pop(), consumer, n * SECOND, node.now_ns)
            node.broker.reschedule(channel)
        elif what == "commit":
            position = min(first + n, topic.log.next_seq)
            channel.commit(position)
            taken = [seq for seq in taken if seq >= position]
        elif what == "time":
            node.advance(n)
            flying = channel.backlog.in_flight.ranges()
            taken = [seq for seq in taken if any(low <= seq < high for low, high in flying)]
        elif what == "checkpoint":
            job = slots.start_job(
                topic, CheckpointPosition(topic.log.next_seq, 0, 0, topic.log.next_seq), durable=n
            )
            job.run(Disk())
            slots.end(job)
            state = CheckpointSlots(Disk(), folder).load(lambda _: None)
            read = Node()
            restored = read.channel().backlog
            state.channels["c"].fill(restored)
            assert restored.unfinished(0, 1 << 54) == channel.backlog.unfinished(0, 1 << 54)
            # A checkpoint may still have the time of a message that fell due: it is due after the restart.
            later = [
                sorted(one for one in backlog.deferred if one[0] > node.now_ns)
                for backlog in (restored, channel.backlog)
            ]
            assert later[0] == later[1]
            flying = {seq: channel.backlog.attempts.get(seq, 1) for seq in taken}
            assert restored.attempts == channel.backlog.attempts | flying
            assert state.channels["c"].committed == channel.committed
    assert (
        channel.backlog.pending.count + channel.backlog.deferred.count + channel.backlog.in_flight.count
        == sum(end - start for start, end in channel.backlog.unfinished(0, 1 << 54))
    )
    assert all(
        one.state is not MessageState.FINISHED
        for one in StatusSnapshot(channel, topic.backlog, taken).resolve()
    )


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.integers(1, 5)),
            st.tuples(st.just("defer"), st.integers(1, 5)),
            st.tuples(st.sampled_from(["pause", "continue", "empty the topic"]), st.just(0)),
            st.tuples(st.sampled_from(["seek", "commit"]), st.integers(0, 20)),
            st.tuples(st.just("finish"), st.integers(0, 20)),
            st.tuples(st.just("deliver"), st.integers(1, 4)),
            st.tuples(st.just("requeue"), st.integers(0, 3)),
            st.tuples(st.sampled_from(["touch", "leave"]), st.integers(0, 20)),
            st.tuples(st.just("time"), st.integers(1, 70)),
        ),
        max_size=30,
    )
)
@settings(deadline=None)
def test_seek_leaves_messages_in_one_state(steps):
    """Whatever happens, each message is pending, deferred, in flight or in the backlog of the topic."""
    node = Node()
    channel, topic = node.channel(), node.topic()
    first = topic.log.next_seq
    consumer, outlet = node.subscribe(channel)
    taken: list[int] = []
    for what, n in steps:
        position = min(first + n, topic.log.next_seq)
        if what == "publish":
            publish(node, n)
        elif what == "defer":
            topic.stage(b"x", node.now_ns, due_ns=node.now_ns + n * SECOND)
            node.publish()
        elif what in ("pause", "continue"):
            node.broker.pause_topic(topic, paused=what == "pause")
        elif what == "empty the topic":
            node.broker.empty_topic(topic)
        elif what == "seek":
            node.broker.seek_channel(topic, channel, position, [(first, topic.log.next_seq)])
            taken = [seq for seq in taken if seq >= position]
        elif what == "commit":
            node.broker.commit_channel(topic, channel, position)
            taken = [seq for seq in taken if seq >= position]
        elif what == "finish" and taken:
            channel.finish([taken.pop(n % len(taken))], consumer, node.now_ns)
        elif what == "deliver":
            node.ready(consumer, consumer.in_flight + n)
            taken += [node.broker.ids.decode(message_id) for message_id, _, _ in outlet.taken()]
            node.ready(consumer, 0)
        elif what == "requeue" and taken:
            channel.requeue(taken.pop(), consumer, n * SECOND, node.now_ns)
            node.broker.reschedule(channel)
            node.broker.serve(channel)
        elif what == "touch" and taken:
            seq = taken[n % len(taken)]
            channel.touch(seq, consumer, 90 * SECOND, node.now_ns)
            node.broker.reschedule(channel)
        elif what == "leave":
            node.broker.remove_consumer(consumer)
            consumer, outlet = node.subscribe(channel)
            taken = []
        elif what == "time":
            node.advance(n)
            flying = channel.backlog.in_flight.ranges()
            taken = [seq for seq in taken if any(low <= seq < high for low, high in flying)]
        in_turn = [
            channel.backlog.pending.ranges(),
            [(start, end) for _, start, end in channel.backlog.deferred.runs()],
            channel.backlog.in_flight.ranges(),
            topic.backlog.pending.ranges(),
            [(start, end) for _, start, end in topic.backlog.deferred.runs()],
        ]
        places = [seq for ranges in in_turn for start, end in ranges for seq in range(start, end)]
        assert len(places) == len(set(places)), (what, n)
        assert set(taken) == {seq for start, end in in_turn[2] for seq in range(start, end)}
        assert consumer.in_flight == len(taken)
        # No consumer is ready while messages are pending, and the timer is set for the next deadline.
        assert not channel.backlog.pending.count or consumer.credit <= 0
        due_ns = channel.next_due_ns()
        assert due_ns is None or node.broker.next_due_ns() <= due_ns
        beyond = topic.backlog.lowest()
        pending = {seq for start, end in channel.backlog.unfinished(0, 1 << 54) for seq in range(start, end)}
        here = {seq for ranges in in_turn[:3] for start, end in ranges for seq in range(start, end)}
        assert pending == here or (beyond is not None and here == {seq for seq in pending if seq < beyond})
