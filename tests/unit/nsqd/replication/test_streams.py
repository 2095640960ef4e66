"""What a copy lacks, what it has too much, and when a checkpoint makes it count."""

import pytest

from nsqd.replication.frames import CopiedFile
from nsqd.replication.streams import TopicStream
from tests.support.pair import Pair


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
def test_a_copy_with_another_file_or_more_of_one_is_in_conflict(stream, change, conflict):
    segment = stream.log.segments[0]
    said = {"name": segment.path.name, "salt": segment.header.salt, "size": segment.size, **change}
    stream.told = (CopiedFile(**said, next_seq=segment.next, last_note=segment.last_note),)

    assert stream.conflicts({}) is conflict


def test_a_file_that_the_home_has_let_go_of_is_no_conflict_and_one_that_it_lost_is(stream):
    behind = stream.log.end + 100
    stream.told = (CopiedFile("00000099.log", 7, 500, behind, 0),)

    assert stream.conflicts({})
    assert stream.conflicts({"00000099.log": 8})
    assert not stream.conflicts({"00000099.log": 7})


def test_a_file_for_which_a_compacted_one_speaks_is_no_conflict(node):
    node.channel("c")
    for number in range(100):
        node.publish(b"%d" % number)
    node.sync()
    node.checkpoint()
    node.checkpoint()
    stream = TopicStream(1, "t", node.store())
    old = stream.log.segments[1]
    channel = node.topic().channels["c"]
    channel.finished.add_run(stream.log.segments[0].first, old.next)

    stream.told = (CopiedFile(old.path.name, old.header.salt, old.size, old.next, old.last_note),)
    assert not stream.conflicts({})
