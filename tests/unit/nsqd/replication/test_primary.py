"""The log of a primary: which replicas count for a publish, and how many are in sync."""

import random

import pytest

from nsqd.replication.log_stream import ReplicaSettings
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.nsqd.replication.replica_end import DATA
from tests.unit.nsqd.replication.stream_pair import StreamPair

_S = 1_000_000_000


def wait(pair, name="t", *, is_publish=True):
    results = []
    pending = pair.origin.primary.wait(pair.origin.store(name), is_publish=is_publish)
    if pending is None:
        return None
    pending.add(results.append)
    return results


class Second(StreamPair):
    """Another replica of the same primary."""

    def __init__(self, pair):
        super().__init__(pair.settings)
        self.origin = pair.origin


@pytest.fixture
def two():
    """Returns a function that connects a primary to two replicas."""

    def connect(*, refuse, replicas=2):
        one = StreamPair(ReplicaSettings(replicas=replicas, refuse=refuse))
        other = Second(one)
        for each in (one, other):
            each.connect()
            each.move()
        return one, other

    return connect


def test_publisher_is_answered_when_replica_has_its_message(pair):
    pair.connect()
    pair.move()
    pair.origin.publish(b"one")

    results = wait(pair)
    assert results == []
    pair.move()

    assert results == [""]
    assert wait(pair) is None


def test_publishes_of_one_turn_wait_together(pair):
    pair.connect()
    pair.move()
    pair.origin.publish(b"one")
    primary, store = pair.origin.primary, pair.origin.store()
    first = primary.wait(store)

    assert primary.wait(store) is first
    pair.origin.publish(b"two")
    assert primary.wait(store) is not first


def test_strict_publisher_is_answered_after_fsync_of_replica():
    pair = StreamPair(ReplicaSettings(replicas=1, strict=True))
    pair.connect()
    pair.move()
    for body in (b"one", b"two"):
        pair.origin.publish(body)
        results = wait(pair)
        pair.move()
        assert results == [""]

    after = pair.disk.after_power_cut(random.Random(3))
    path = pair.record().path / "t.topic" / "00000001.log"
    assert after.read_file(path) == pair.origin.files()["00000001.log"]


LACKING = "1 of 2 replicas are in sync"


@pytest.mark.parametrize(
    ("refuse", "replicas", "steps"),
    [
        (False, 2, [("one", []), ("other", [""])]),
        (True, 2, [("one", []), ("other", [""])]),
        (False, 1, [("other", [""])]),
        (False, 2, [("lost", []), ("one", [""])]),
        # An acknowledgement of a replica that is lost before the OK does not count.
        (False, 2, [("other", []), ("lost", []), ("one", [""])]),
        (True, 2, [("other", []), ("lost", [LACKING]), ("one", [LACKING])]),
    ],
)
def test_publisher_waits_for_wanted_replicas_in_sync(two, refuse, replicas, steps):
    one, other = two(refuse=refuse, replicas=replicas)
    one.origin.publish(b"one")
    results = wait(one)
    assert one.origin.primary.replicas_of_topic(one.origin.store()) == (2, replicas)

    for step, answered in steps:
        {"one": one.move, "other": other.move, "lost": other.cut}[step]()
        assert results == answered


def test_publisher_waits_for_the_one_replica_that_is_in_sync(two):
    one, other = two(refuse=False)
    other.cut()
    one.origin.publish(b"one")
    results = wait(one)
    assert results == []

    one.move()

    assert results == [""]


def test_publish_is_refused_when_replica_is_lost(two):
    one, other = two(refuse=True)
    one.origin.publish(b"one")
    results = wait(one)

    other.cut()

    assert results == [LACKING]
    assert one.origin.primary.lacks(one.origin.store()) == LACKING
    assert wait(one) == [LACKING]


@pytest.mark.parametrize(("refuse", "reason"), [(False, ""), (True, "0 of 1 replicas are in sync")])
def test_publisher_is_answered_when_the_last_replica_is_lost(refuse, reason):
    pair = StreamPair(ReplicaSettings(replicas=1, refuse=refuse))
    pair.connect()
    pair.move()
    pair.origin.publish(b"one")
    results = wait(pair)

    pair.cut()

    assert results == [reason]
    assert pair.origin.primary.lacks(pair.origin.store()) == reason
    assert wait(pair) == (None if not refuse else [reason])


def test_change_waits_for_replicas_that_are_left_and_is_never_refused(two):
    one, other = two(refuse=True)
    other.cut()
    one.origin.publish(b"one")

    assert wait(one) == [LACKING]
    results = wait(one, is_publish=False)
    assert results == []
    one.move()

    assert results == [""]


def test_topic_that_is_about_to_be_made_counts_connected_replicas():
    pair = StreamPair(ReplicaSettings(replicas=1, refuse=True))
    other = StreamPair().origin.store()
    assert pair.origin.primary.lacks(other) == "0 of 1 replicas are in sync"

    pair.connect()
    pair.move()

    assert pair.origin.primary.lacks(other) == ""


def test_stalled_replica_does_not_count_until_it_has_caught_up(pair):
    pair.connect()
    pair.move()
    pair.origin.publish(b"one")
    results = wait(pair)
    pair.out += pair.sender.flush(pair.now)

    pair.sender.check_timeout(pair.now + 3 * _S, 2 * _S)

    assert results == [""]
    assert not pair.in_sync()
    assert not pair.stream.is_caught_up
    pair.move()
    assert pair.in_sync()


def test_append_at_which_one_stream_ends_goes_to_the_others(two, monkeypatch):
    monkeypatch.setattr("nsqd.replication.log_stream.MAX_LAG_BYTES", 10_000)
    slow, other = two(refuse=False, replicas=1)
    for _ in range(6):
        other.origin.publish(b"x" * 3000)
        results = wait(other)
        other.move()
        assert results == [""]
    other.settle()

    assert slow.stream.problem
    assert other.copied() == other.origin.files()


def test_under_replicated_topics_are_counted(pair):
    pair.origin.publish(b"one")
    pair.origin.publish(b"two", name="u")
    assert pair.origin.primary.under_replicated() == 2

    pair.connect()
    pair.settle()

    assert pair.origin.primary.under_replicated() == 0


def test_topic_that_is_removed_from_primary_stays_in_copies(pair):
    pair.connect()
    pair.move()
    pair.origin.publish(b"one")
    pair.settle()
    copied = pair.copied()

    pair.origin.primary.close()

    assert pair.stream.problem == "the log is not owned here any more"
    assert pair.origin.store().segments.tap is None
    assert pair.copied() == copied


def test_log_of_promoted_copy_is_streamed_with_its_checkpoints():
    first = StreamPair()
    first.connect()
    first.move()
    first.origin.channel()
    for number in range(40):
        first.origin.publish(b"%d" % number)
    first.settle()
    first.cut()
    record = first.record()
    first.copies.promote(record, 1)
    disk = first.disk
    # The folder of a promoted copy is opened as a data path would be.
    second = StreamPair(disks=(disk, SimulatedDisk(DATA)), data_paths=(record.path, DATA))
    second.connect()
    second.settle()

    assert second.stream.is_caught_up
    assert len(second.copied()) > 3
    assert second.copied() == second.origin.files()
