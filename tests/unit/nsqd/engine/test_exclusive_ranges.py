from hypothesis import given
from hypothesis import strategies as st

from nsqd.engine.exclusive_ranges import ExclusiveRanges
from nsqd.log.disk import Disk
from nsqd.log.encoder import Batch
from nsqd.log.ranges import merged
from nsqd.log.tail_records import CheckpointPosition
from nsqd.storage.slots import CheckpointSlots
from tests.support.engine import Node

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6), st.sampled_from("ab")), max_size=8)


def numbers(ranges):
    return {seq for start, end in ranges for seq in range(start, end)}


@given(SPANS, st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20))), st.integers(0, 50))
def test_exclusive_ranges_of_other_channels_are_left_out(spans, kept, seq):
    exclusive = ExclusiveRanges()
    of_others = set()
    for first, size, name in sorted(spans):
        if first >= exclusive.end:
            of_others |= set(range(first, first + size)) if name == "b" else set()
        exclusive.add(first, first + size, name)
    ranges = merged([(start, start + size) for start, size in kept])

    left = exclusive.without_others("a", ranges)

    assert numbers(left) == numbers(ranges) - of_others
    assert left == sorted(left)
    exclusive.drop_below(seq)
    high = [(max(start, seq), end) for start, end in ranges if end > seq]
    assert numbers(exclusive.without_others("a", high)) == numbers(high) - of_others


def test_exclusive_range_is_added_once_and_dropped_if_not_stored():
    exclusive = ExclusiveRanges()
    exclusive.add(1, 3, "a")
    exclusive.add(5, 7, "b")
    exclusive.add(1, 3, "a")
    assert exclusive.since(0) == [(1, 3, "a"), (5, 7, "b")]
    assert exclusive.since(2) == [(5, 7, "b")]

    exclusive.drop_from(5)

    assert (exclusive.since(0), len(exclusive), exclusive.end) == ([(1, 3, "a")], 1, 3)


def test_channel_that_goes_back_is_not_owed_what_came_back_to_another():
    node = Node()
    mine, other = node.channel("mine"), node.channel("other")
    first = node.topic().log.next_seq
    node.publish(b"1")
    node.topic().stage_for("mine", Batch([b"back"]), node.now_ns)
    node.publish(b"2")

    kept = [(first, node.topic().log.next_seq)]
    for channel in (mine, other):
        node.broker.seek_channel(node.topic(), channel, first, kept)
    new = node.broker.channel(node.topic(), "new", kept)

    assert [channel.backlog.pending.count for channel in (mine, other, new)] == [3, 2, 2]


def test_exclusive_range_of_refused_messages_is_dropped():
    node = Node()
    node.channel("mine")
    node.topic().stage_for("mine", Batch([b"lost"]), node.now_ns)

    node.topic().abandon()

    assert not len(node.topic().exclusive)


def test_checkpoint_and_its_additions_have_finished_elsewhere(tmp_path):
    node = Node()
    node.channel("mine")
    topic = node.topic()
    # A channel that finishes nothing keeps the whole log.
    node.channel("slow")
    disk = Disk()
    slots = CheckpointSlots(disk, tmp_path)
    for _ in range(5):
        topic.stage_for("mine", Batch([b"back"]), node.now_ns)
        node.publish(b"1")
        end = topic.log.next_seq
        job = slots.start_job(topic, CheckpointPosition(end, 0, end, end))
        job.run(disk)
        slots.end(job)

        state = CheckpointSlots(disk, tmp_path).load(print)

        assert state is not None
        assert state.exclusive == topic.exclusive.since(0)
    assert len(topic.exclusive) == 5


def test_paused_topic_gives_exclusive_messages_to_all():
    node = Node()
    mine, other = node.channel("mine"), node.channel("other")
    topic = node.topic()
    node.broker.pause_topic(topic, paused=True)
    topic.stage_for("mine", Batch([b"back"]), node.now_ns)
    node.publish(b"1")
    node.broker.pause_topic(topic, paused=False)

    assert [channel.backlog.pending.count for channel in (mine, other)] == [2, 2]
    assert not len(topic.exclusive)


def test_exclusive_range_stays_while_reader_may_ask():
    exclusive = ExclusiveRanges()
    for first in range(0, 3000, 2):
        exclusive.add(first, first + 2, "mine")
    exclusive.drop_below(101)
    assert exclusive.since(0)[0] == (100, 102, "mine")
    exclusive.drop_below(2000, 300)
    assert exclusive.since(0)[0] == (300, 302, "mine")
    assert (exclusive.start_of_others("other", 2001), exclusive.start_of_others("mine", 2001)) == (300, 2001)

    # Only the newest thousand removed ranges are retained, for any request.
    exclusive.drop_below(3000, 300)
    assert len(exclusive) == 1000
    exclusive.drop_below(3000, 3000)
    assert not len(exclusive)


def test_start_of_others_ends_at_own_message():
    exclusive = ExclusiveRanges()
    exclusive.add(1, 3, "mine")
    exclusive.add(4, 6, "mine")
    exclusive.add(6, 8, "third")
    exclusive.add(8, 9, "other")

    assert [exclusive.start_of_others("other", seq) for seq in (8, 7, 4, 3, 1, 0, 9, 10)] == [
        4,
        4,
        4,
        1,
        1,
        0,
        9,
        10,
    ]
