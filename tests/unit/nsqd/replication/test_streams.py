"""What a copy lacks, what it has too much of, and when a checkpoint makes it count."""

import pytest

from nsqd.replication.choosing import Appointed
from nsqd.replication.frames import CopiedFile
from nsqd.replication.home import HomeSettings
from nsqd.replication.streams import LetGo, TopicStream
from nsqd.storage.data_path import extents_of
from tests.support.pair import HomeNode, Pair


@pytest.fixture
def node():
    return Pair().home


@pytest.fixture
def stream(node):
    node.channel("c")
    for number in range(100):
        node.publish(b"%d" % number)
    node.sync()
    found = TopicStream(1, "t", node.store())
    found.told = ()
    found.begin()
    return found


def whole(stream):
    return {segment.path.name: segment.size for segment in stream.log.segments}


def test_a_checkpoint_that_tells_of_less_than_was_there_is_not_enough(stream):
    log = stream.log

    assert stream.covered_by(log.end, log.notes)
    assert not stream.covered_by(log.end - 1, log.notes)
    assert not stream.covered_by(log.end, log.notes - 1)


def test_the_oldest_that_is_lacking_comes_first(stream):
    first, *_ = stream.log.segments

    job = stream.next_read()

    assert (job.segment, job.offset, job.size) == (first, 0, first.size)
    assert stream.next_read() is None


def test_what_the_copy_has_too_much_goes_when_nothing_before_it_is_lacking(stream):
    stream.has = {**whole(stream), "00000002.1.log": 500}
    assert stream.extra() == []

    stream.whole = {"00000001.log", "00000002.log"}

    assert stream.extra() == ["00000002.1.log"]


@pytest.mark.parametrize(
    ("change", "conflict"),
    [({}, False), ({"size": 1}, False), ({"size": 1 << 20}, True), ({"salt": 5}, True)],
)
@pytest.mark.parametrize("let_go", [False, True])
def test_a_copy_with_another_file_or_more_of_one_is_in_conflict(node, stream, change, conflict, let_go):
    segment = stream.log.segments[0]
    stream.told = (said(segment, **change),)
    gone, settled = {}, node.settled
    if let_go:
        gone = {segment.path.name: LetGo(segment.header.salt, segment.size)}
        stream.log._forget([segment])
        if "salt" not in change:
            # The file was removed because nobody wanted it; of a file with another salt everything is missed.
            settled = lambda _name: [(segment.first, segment.next)]  # noqa: E731

    assert stream.conflicts(gone, settled) is conflict


def test_a_copy_of_a_file_in_which_the_home_has_lost_something_is_in_conflict(node, stream):
    segment = stream.log.segments[0]
    stream.told = (said(segment),)

    assert stream.conflicts({}, lambda _name: [(segment.first, segment.next - 1)])
    assert not stream.conflicts({}, lambda _name: [(segment.first, segment.next)])


def said(segment, **change):
    """The report of a keeper that has the whole file."""
    known = {
        "name": segment.path.name,
        "salt": segment.header.salt,
        "size": segment.size,
        "first": segment.first,
        "next_seq": segment.next,
        "last_note": segment.last_note,
    }
    return CopiedFile(**{**known, **change})


def test_a_file_that_the_home_does_not_know_is_a_conflict_unless_all_in_it_is_settled(stream):
    stream.told = (CopiedFile("00000099.log", 7, 500, first=20, next_seq=30),)

    assert not stream.conflicts({}, lambda _name: [(5, 40)])
    assert stream.conflicts({}, lambda _name: [(5, 29)])
    assert stream.conflicts({}, lambda _name: [(21, 40)])
    assert stream.conflicts({}, lambda _name: [(5, 24), (25, 40)])
    assert stream.conflicts({}, lambda _name: [])


def test_a_file_that_the_home_does_not_know_is_a_conflict_when_it_has_notes_that_no_checkpoint_knows(stream):
    stream.told = (CopiedFile("00000099.log", 7, 500, 20, 30, stream.log.known_durable.notes + 1),)

    assert stream.conflicts({}, lambda _name: [(5, 40)])


def test_a_file_of_which_nobody_knows_what_is_in_it_is_a_conflict_when_the_home_has_it_no_more(stream):
    stream.told = (CopiedFile("00000099.log", 7, 500),)

    assert stream.conflicts({}, lambda _name: [(0, 1 << 62)])
    assert not stream.conflicts({"00000099.log": LetGo(7, 500)}, lambda _name: [])


# --- a power cut took the end of the home's log, and then the home removed the file, or merged it with
# another: messages that only the copy has are found in this life and in later ones ---

MANY = 12


def a_life(disk):
    return HomeNode(disk, Appointed(1, "keeper:4150"), HomeSettings(replicas=1))


def before_the_cut(node):
    """Returns the disk without the last messages, and the report of a keeper that has them all."""
    node.channel("c")
    node.publish(*[b"%d" % number * 90 for number in range(MANY)])
    node.sync()
    store = node.store()
    size = store.segments[0].size
    node.publish(*[b"lost" * 20 for _ in range(3)])
    for _ in range(2):
        # Both checkpoints say that the last messages are owed.
        node.checkpoint()
    disk = node.disk.killed()
    disk.truncate(store.segments[0].path, size)
    return disk, tuple(said(segment) for segment in store.segments)


def finish(node, *, but):
    """Finish all readable messages except the last *but*, and skip the others, as readers do."""
    topic, store = node.topic(), node.store()
    channel = topic.channels["c"]
    seqs = [seq for start, end in extents_of(topic) for seq in range(start, end)]
    node.broker.finish_messages(topic, channel, seqs[: len(seqs) - but])
    node.turn()
    for gap in store.losses(topic.log.kept_from):
        topic.log.had.take_out(gap.start, gap.end)
        channel.take_out_ranges([(gap.start, gap.end)])
        channel.finished.add(gap.start, gap.end)
    for _ in range(3):
        node.checkpoint()


def let_go(node):
    finish(node, but=0)
    node.store().seal()
    finish(node, but=0)


def compact(node):
    node.publish(*[b"behind" * 20 for _ in range(MANY)])
    node.sync()
    node.store().seal()
    node.publish(b"the newest")
    node.sync()
    finish(node, but=4)
    node.compact()
    assert any(segment.generation for segment in node.store().segments)


def conflicts(node, told):
    store = node.store()
    stream = TopicStream(1, "t", store)
    stream.told = told
    assert not {one.name for one in told} & {segment.path.name for segment in store.segments}
    return stream.conflicts(node.home.gone_of(store), node.settled)


@pytest.mark.parametrize("lives", [0, 1, 2])
@pytest.mark.parametrize("then", [let_go, compact])
def test_the_end_that_a_home_has_lost_is_in_conflict_whatever_became_of_the_file(node, then, lives):
    disk, told = before_the_cut(node)
    after = a_life(disk)

    then(after)
    for _ in range(lives):
        after = a_life(after.disk.killed())

    assert conflicts(after, told)


@pytest.mark.parametrize("lives", [0, 1, 2])
@pytest.mark.parametrize("then", [let_go, compact])
def test_a_home_that_has_lost_nothing_goes_on_with_its_copy_whatever_became_of_the_file(node, then, lives):
    _, told = before_the_cut(node)
    after = a_life(node.disk.killed())

    then(after)
    for _ in range(lives):
        after = a_life(after.disk.killed())

    assert not conflicts(after, told)
