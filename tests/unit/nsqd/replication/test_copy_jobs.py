"""The jobs of a copy that wait for the disk."""

import errno
import random

import pytest

from nsqd.replication.frames import Ack, CopiedFile, Have, Refuse, Remove, Rename, Seal, Sync
from nsqd.replication.framing import encode
from tests.unit.nsqd.replication.replica_end import FIRST, SECOND, Shelf, part, primary_file


def test_file_in_parts_has_index_when_it_is_complete(shelf, shop):
    shelf.begin()
    for number in range(9):
        shop.publish(b"%d" % number)
    whole = primary_file(shop)

    shelf.send(part(FIRST, 0, whole[:200]), part(FIRST, 200, whole[200:]), Seal(1, FIRST, len(whole)), Sync())

    assert shelf.content(FIRST) == whole
    assert "00000001.index" in shelf.names()
    shelf.connect()
    segment = shop.store.segments[0]
    file = CopiedFile(FIRST, segment.header.salt, len(whole), segment.first, segment.next, 0)
    assert Have(1, (file,)) in shelf.begin()


@pytest.mark.parametrize("is_killed", [False, True])
def test_bytes_of_failed_sync_are_durable_when_the_next_is_acknowledged(shelf, shop, sent, is_killed):
    shelf.begin()
    shop.publish(b"x" * 9000)
    shelf.disk.fail(errno.EIO, "sync", "*.log")
    shelf.send(*sent.frames, Sync())
    assert shelf.refused.code == Refuse.DISK

    if is_killed:
        shelf = Shelf(shelf.disk.killed())
    shelf.connect()
    shelf.begin(resume=True)
    *_, ack = shelf.send(Sync())

    assert ack == Ack(shelf.end.written, shelf.end.written)
    for seed in range(20):
        after = Shelf(shelf.disk.after_power_cut(random.Random(seed)))
        after.begin(resume=True)
        assert after.content(FIRST) == primary_file(shop)


def test_sync_waits_for_final_names(shelf, shop):
    shelf.begin()
    shop.publish(b"one")
    whole = primary_file(shop)
    for frame in (part(f"{FIRST}.new", 0, whole), Rename(1, f"{FIRST}.new", FIRST), Sync()):
        shelf.end.receive(encode(frame))

    while shelf.end.synced < shelf.end.written:
        jobs = shelf.end.jobs()
        assert jobs
        for job in reversed(jobs):
            job.run(shelf.disk)
            shelf.end.ended(job, None)
            if shelf.end.synced == shelf.end.written:
                break

    after = Shelf(shelf.disk.after_power_cut(random.Random(1)))
    after.begin(resume=True)
    assert after.content(FIRST) == whole


def test_failed_job_stops_no_later_one(shelf, shop):
    shelf.begin()
    shop.publish(b"one")
    whole = primary_file(shop)
    shelf.send(part(FIRST, 0, whole), part(SECOND, 0, whole))
    shelf.disk.fail(errno.EIO, "sync")
    shelf.send(Seal(1, FIRST, len(whole)), Sync())
    assert shelf.refused.code == Refuse.DISK

    shelf.connect()
    shelf.begin()
    shelf.send(Seal(1, FIRST, len(whole)), Remove(1, SECOND), Sync())

    assert [name for name in shelf.names() if name.startswith("0000")] == [
        FIRST.replace(".log", ".index"),
        FIRST,
    ]


def test_steps_that_no_job_has_taken_are_forgotten_with_connection(shelf, shop):
    shelf.begin()
    shop.publish(b"one")
    whole = primary_file(shop)
    shelf.send(part(f"{FIRST}.new", 0, whole))
    shelf.end.receive(encode(Rename(1, f"{FIRST}.new", FIRST)))

    shelf.connect()
    shelf.begin()
    shelf.send(part(f"{FIRST}.new", 0, whole[:100]), Remove(1, SECOND), Sync())

    assert shelf.end.refused is None
    assert FIRST not in shelf.names()


@pytest.mark.parametrize("seed", range(6))
def test_checkpoint_is_durable_before_files_are_removed_because_of_it(shelf, shop, seed):
    shelf.begin()
    shop.publish(b"one")
    shelf.send(part(FIRST, 0, primary_file(shop)), Sync())
    shelf.send(
        part("checkpoint.0.tmp", 0, b"c" * 5000),
        Rename(1, "checkpoint.0.tmp", "checkpoint.0"),
        Remove(1, FIRST),
        Sync(),
    )

    after = shelf.disk.after_power_cut(random.Random(seed))

    (name,) = [name for name in after.names(shelf.folder()) if name.startswith("checkpoint")]
    assert after.read_file(shelf.folder() / name) == b"c" * 5000


def test_files_of_recovered_topics_are_looked_at_again(shelf, shop, sent):
    shelf.begin()
    shop.publish(b"one")
    shelf.send(*sent.frames)
    record = shelf.record
    shelf.connect()
    # Another part of the node has recovered the topics and changed the files.
    record.opened = True
    shelf.disk.remove(record.path / "t.topic" / FIRST)

    assert Have(1, ()) in shelf.begin_negotiation()


def test_copy_is_looked_at_after_jobs_of_connection_before(shelf, shop):
    shelf.begin()
    shop.publish(b"one")
    shelf.send(part(FIRST, 0, primary_file(shop)))
    before = shelf.end
    before.receive(encode(Remove(1, FIRST)) + encode(Sync()))
    (job,) = before.jobs()

    shelf.connect()
    answers = shelf.begin_negotiation()
    assert answers == []
    job.run(shelf.disk)
    before.ended(job, None)
    shelf.end.work()

    assert [one for one in shelf.end.answers() if isinstance(one, Have)] == [Have(1, ())]
