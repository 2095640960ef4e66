"""What a copy lacks, which files of it are obsolete, and when it conflicts with the log."""

import pytest

from nsqd.replication.frames import CopiedFile
from nsqd.replication.log_stream import ReplicaSettings
from nsqd.replication.topic_stream import TopicStream
from nsqd.storage.data_path import extents_of
from tests.unit.nsqd.replication.stream_pair import Origin, StreamPair


@pytest.fixture
def node():
    return StreamPair().origin


@pytest.fixture
def stream(node):
    node.channel("c")
    for number in range(100):
        node.publish(b"%d" % number)
    node.sync()
    found = TopicStream(1, "t", node.store())
    found.reported = ()
    found.begin()
    return found


def report(segment, **change):
    """The report of a replica that has the whole file."""
    known = {
        "name": segment.path.name,
        "salt": segment.header.salt,
        "size": segment.size,
        "first": segment.first,
        "next_seq": segment.next,
        "last_note": segment.last_note,
    }
    return CopiedFile(**{**known, **change})


def test_snapshot_covers_everything_before_stream(stream):
    log = stream.log

    assert stream.covered_by(log.segments.end, log.segments.notes)
    assert not stream.covered_by(log.segments.end - 1, log.segments.notes)
    assert not stream.covered_by(log.segments.end, log.segments.notes - 1)


def test_obsolete_file_stays_until_its_replacements_are_complete(stream):
    sizes = {segment.path.name: segment.size for segment in stream.log.segments}
    stream.sizes = {**sizes, "00000002.1.log": 500}
    assert stream.obsolete() == []

    stream.complete = {"00000001.log", "00000002.log"}

    assert stream.obsolete() == ["00000002.1.log"]


# --- conflicts ---


@pytest.mark.parametrize(
    ("change", "conflict"),
    [({}, False), ({"size": 1}, False), ({"size": 1 << 20}, True), ({"salt": 5}, True)],
)
def test_other_or_longer_file_conflicts(node, stream, change, conflict):
    stream.reported = (report(stream.log.segments[0], **change),)

    assert stream.conflicts(node.unneeded("t")) is conflict


def test_file_in_which_log_has_lost_message_conflicts(stream):
    segment = stream.log.segments[0]
    stream.reported = (report(segment),)

    assert stream.conflicts([(segment.first, segment.next - 1)])
    assert not stream.conflicts([(segment.first, segment.next)])


@pytest.mark.parametrize(
    ("unneeded", "conflict"),
    [([(5, 40)], False), ([(5, 29)], True), ([(21, 40)], True), ([(5, 24), (25, 40)], True), ([], True)],
)
def test_unknown_file_conflicts_unless_its_messages_are_not_needed(stream, unneeded, conflict):
    stream.reported = (CopiedFile("00000099.log", 7, 500, first=20, next_seq=30),)

    assert stream.conflicts(unneeded) is conflict


@pytest.mark.parametrize("contents", [(), (20, 30, 1 << 40)], ids=["unknown", "notes without a checkpoint"])
def test_unknown_file_conflicts_though_its_messages_are_not_needed(stream, contents):
    stream.reported = (CopiedFile("00000099.log", 7, 500, *contents),)

    assert stream.conflicts([(0, 1 << 62)])


# --- a power cut took the end of the log, and then the file was removed or compacted: the messages that only
# the copy has are found in the same process and in later ones ---

MANY = 12


def started(disk):
    return Origin(disk, ReplicaSettings(replicas=1))


def before_the_cut(node):
    """Returns the disk without the last messages, and the report of a replica that has them all."""
    node.channel("c")
    node.publish(*[b"%d" % number * 90 for number in range(MANY)])
    node.sync()
    store = node.store()
    size = store.segments[0].size
    node.publish(*[b"lost" * 20 for _ in range(3)])
    for _ in range(2):
        # Both checkpoints say that the last messages are pending.
        node.checkpoint()
    disk = node.disk.killed()
    disk.truncate(store.segments[0].path, size)
    return disk, tuple(report(segment) for segment in store.segments)


def finish(node, *, but):
    """Finish all readable messages except the last *but*, and skip the others, as readers do."""
    topic, store = node.topic(), node.store()
    channel = topic.channels["c"]
    seqs = [seq for start, end in extents_of(topic) for seq in range(start, end)]
    node.broker.finish_messages(topic, channel, seqs[: len(seqs) - but])
    node.turn()
    for gap in store.segments.losses(topic.log.log_start):
        topic.log.stored_ranges.remove(gap.start, gap.end)
        channel.remove([(gap.start, gap.end)])
    for _ in range(3):
        node.checkpoint()


def remove(node):
    finish(node, but=0)
    node.store().appender.seal()
    finish(node, but=0)


def compact(node):
    node.publish(*[b"behind" * 20 for _ in range(MANY)])
    node.sync()
    node.store().appender.seal()
    node.publish(b"the newest")
    node.sync()
    finish(node, but=4)
    node.compact()
    assert any(segment.generation for segment in node.store().segments)


def conflicts(node, reported):
    store = node.store()
    stream = TopicStream(1, "t", store)
    stream.reported = reported
    assert not {one.name for one in reported} & {segment.path.name for segment in store.segments}
    return stream.conflicts(node.unneeded("t"))


@pytest.mark.parametrize("restarts", [0, 1, 2])
@pytest.mark.parametrize("then", [remove, compact])
@pytest.mark.parametrize("is_lost", [True, False])
def test_file_that_is_gone_conflicts_if_log_has_lost_its_end(node, is_lost, then, restarts):
    disk, reported = before_the_cut(node)
    after = started(disk if is_lost else node.disk.killed())

    then(after)
    for _ in range(restarts):
        after = started(after.disk.killed())

    assert conflicts(after, reported) is is_lost
