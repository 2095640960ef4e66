"""A replica that crashes, fails or loses power at a call of the disk, and resumes."""

import errno
import random
from functools import cache

import pytest

from tests.support.simulated_disk import SimulatedDisk
from tests.unit.nsqd.replication.replica_end import DATA
from tests.unit.nsqd.replication.stream_pair import StreamPair

# The calls of the first scan.
SCAN = 2


class Crash(BaseException):
    """The process ends at this call."""


def history(pair):
    """Everything that a stream does: appends, checkpoints, catch-up, seals, compaction, a deleted topic."""
    pair.origin.channel()
    seqs = [seq for number in range(24) for seq in pair.origin.publish(b"%d" % number * 60)]
    pair.origin.publish(b"short", name="u")
    pair.connect()
    pair.settle(2)
    pair.origin.sync()
    topic = pair.origin.topic()
    finished = [seq for place, seq in enumerate(seqs[3:-3]) if place % 3]
    pair.origin.broker.finish_messages(topic, topic.channels["c"], finished)
    pair.origin.turn()
    pair.origin.sync()
    pair.origin.checkpoint()
    pair.origin.checkpoint()
    pair.origin.compact()
    pair.settle(2)
    pair.origin.publish(b"live", name="u")
    pair.origin.delete("u")
    pair.origin.publish(b"again", name="u")
    pair.settle(1)


def resume(pair):
    """Connect again and let everything be copied."""
    pair.connect()
    pair.settle()
    assert pair.reason == ""
    assert pair.stream.is_caught_up
    for name in pair.origin.broker.topics:
        assert pair.copied(name) == pair.origin.files(name)
    pair.copies.remove_deleted()


@cache
def calls():
    """How many calls the replica makes in the history."""
    pair = StreamPair()
    history(pair)
    assert pair.origin.files()
    return len(pair.disk.calls)


def run_until(pair, call):
    """Run the history until the replica's process ends at this call; returns what it had durably."""
    durable = {}

    def before(one):
        if pair.stream is not None and pair.stream.is_caught_up:
            durable.update({name: pair.origin.pending(name) for name in pair.origin.broker.topics})
        if one.number == call:
            raise Crash

    pair.disk.before_call = before
    with pytest.raises(Crash):
        history(pair)
    pair.disk.before_call = lambda _call: None
    # The primary sees the end of the connection.
    if pair.sender is not None:
        pair.sender.close()
        pair.stream.close()
    pair.sender = pair.stream = pair.end = None
    pair.out = []
    return durable


def assert_readable(pair, durable):
    """Assert that the copy has what the replica had durably and the primary still has pending."""
    for name, seqs in durable.items():
        if name in pair.origin.broker.topics:
            assert pair.readable(name) >= seqs & pair.origin.pending(name)


@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("loses_power", [False, True])
def test_replica_that_ended_at_call_resumes(loses_power, part):
    # The process is killed at each odd call, and the power is cut at each even one.
    for call in range(SCAN + 2 * part + (not loses_power), calls(), 16):
        pair = StreamPair()
        durable = run_until(pair, call)

        rng = random.Random(call)
        pair.restart_replica(pair.disk.after_power_cut(rng) if loses_power else pair.disk.killed())

        assert_readable(pair, durable)
        resume(pair)


@pytest.mark.parametrize("part", range(8))
def test_replica_whose_disk_failed_at_call_resumes_in_same_process(part):
    refused = 0
    for call in range(SCAN + 2 * part, calls(), 16):
        pair = StreamPair()
        pair.disk.fail(errno.EIO, call=call)
        history(pair)
        refused += bool(pair.reason)
        pair.disk.heal()

        resume(pair)

    assert refused > 2


def test_replica_with_disk_that_is_full_for_a_while_resumes():
    for room in range(0, 30_000, 3000):
        pair = StreamPair(disks=(SimulatedDisk(DATA), SimulatedDisk(DATA, capacity=room)))
        history(pair)
        pair.disk.heal()

        resume(pair)
