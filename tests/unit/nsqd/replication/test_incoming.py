"""The replica's side of a stream: negotiation, what is acknowledged, and frames that wait for folders."""

import errno

import pytest

from nsqd.replication import incoming
from nsqd.replication.frames import (
    Ack,
    Appends,
    DeleteTopic,
    Have,
    Holder,
    Log,
    Ping,
    Ready,
    Refuse,
    Remove,
    Seal,
    Snapshot,
    Sync,
    Topic,
)
from nsqd.replication.framing import encode
from tests.unit.nsqd.replication.replica_end import (
    DATA,
    FIRST,
    LOG,
    ORIGIN,
    Shelf,
    part,
    primary_file,
    records,
)

NOTHING = Ready(1, has_copy=False, others=0)


def size(*frames):
    return sum(len(encode(one)) for one in frames)


# --- negotiation ---


def test_replica_without_copy_has_nothing(shelf):
    assert shelf.begin_negotiation("t", "u") == [Have(1, ()), Have(2, ()), NOTHING]


def test_new_copy_has_what_log_says(shelf):
    log = Log(1, ORIGIN, 5, 0, 1, strict=False, holders=(Holder(b"h" * 16, "holder:4150"),))
    shelf.send(log, NOTHING)
    shelf.send(Snapshot(1, resume=False))

    (found,) = Shelf(shelf.disk).copies.scan()
    assert (found.origin, found.owner, found.epoch, found.seen, found.index) == (ORIGIN, ORIGIN, 5, 5, 1)
    assert found.holders == {b"h" * 16: "holder:4150"}
    assert found.origin_node_id == 1


def test_replica_reports_topics_that_primary_has_not_named(shelf):
    shelf.begin("t", "u", "v")
    shelf.connect()

    assert shelf.begin_negotiation("u")[-1] == Ready(1, has_copy=True, others=2)


def test_stream_that_resumes_updates_record(shelf):
    shelf.begin()
    shelf.record.opened = True
    shelf.copies.save(shelf.record)
    shelf.connect()
    shelf.end.owner = b"x" * 16

    shelf.begin(resume=True)

    (found,) = Shelf(shelf.disk).copies.scan()
    assert (found.owner, found.opened) == (b"x" * 16, False)
    assert found.path.parent.name == (b"x" * 16).hex()


@pytest.mark.parametrize(
    ("frames", "sentence"),
    [
        ([Snapshot(1, resume=False)], "the stream cannot begin now"),
        ([NOTHING, NOTHING], "the topics were named already"),
        ([NOTHING, Topic(1, 1, "t")], "all topics were named already"),
        ([Topic(1, 1, "t"), Topic(1, 1, "u")], "topic 1 has a name already"),
        ([Topic(1, 1, "t"), Topic(1, 2, "t")], "topic t has a number already"),
        ([NOTHING, Snapshot(1, resume=True)], "there is no earlier copy"),
        ([Topic(1, 1, "t"), Remove(1, FIRST)], "Remove came before the stream"),
        ([NOTHING, Snapshot(1, resume=False), Remove(9, FIRST)], "there is no topic 9"),
        ([Ping()], "Ping is not part of a stream"),
    ],
)
def test_frame_out_of_order_is_refused(shelf, frames, sentence):
    for frame in (LOG, *frames):
        shelf.send(frame)

    assert shelf.refused == Refuse(Refuse.BAD_FRAME, sentence)


def test_files_of_many_topics_are_found_by_one_job(shelf):
    names = [f"t{number}" for number in range(250)]
    shelf.begin(*names)
    after = Shelf(shelf.disk.killed())
    topics = [Topic(1, at, name) for at, name in enumerate(names, 1)]
    after.end.receive(b"".join(map(encode, (LOG, *topics, NOTHING))))
    jobs = []
    while found := after.end.jobs():
        jobs += found
        for job in found:
            job.run(after.disk)
            after.end.ended(job, None)

    assert len(jobs) == 1
    assert sum(isinstance(one, Have) for one in after.end.answers()) == 250


# --- acknowledgements ---


def test_acknowledgement_covers_everything_before_it(shelf, shop, sent):
    shelf.begin()
    shop.publish(b"one")
    before = shelf.end.written

    (ack,) = shelf.send(*sent.frames)

    assert ack.written == before + size(*sent.frames)
    assert ack.synced <= before


def test_snapshot_is_not_written_before_copy_is_made(shelf, shop, sent):
    shelf.begin_negotiation()
    shop.publish(b"one")
    before = shelf.end.written

    shelf.end.receive(b"".join(map(encode, (Snapshot(1, resume=False), *sent.frames))))
    assert shelf.end.answers() == []
    shelf.end.work()

    assert shelf.content(FIRST) == primary_file(shop)
    assert shelf.end.written == before + size(Snapshot(1, resume=False), *sent.frames)


def test_frames_of_new_topic_wait_for_its_folder_in_order(shelf, shop, sent):
    shelf.begin("other")
    before = shelf.end.written
    for number in range(5):
        shop.publish(b"%d" % number)
    whole = primary_file(shop)
    frames = [Appends(2, one.file, one.offset, one.data) for one in sent.frames]

    shelf.end.receive(b"".join(map(encode, (Topic(1, 2, "t"), *frames, Seal(2, FIRST, len(whole))))))
    (job,) = shelf.end.jobs()
    # The other topics are written, and nothing behind the first waiting frame is acknowledged.
    shelf.end.receive(encode(part("checkpoint.0.tmp", 0, b"x")))
    assert shelf.names("other") == ["checkpoint.0.tmp"]
    assert shelf.end.written == before + size(Topic(1, 2, "t"))
    job.run(shelf.disk)
    shelf.end.ended(job, None)

    assert shelf.content(FIRST) == whole
    assert shelf.end.written > before + size(*frames)


@pytest.mark.parametrize(("at_once", "syncs"), [(250, 1), (10, 3)])
def test_folders_of_new_topics_are_made_together(shelf, monkeypatch, at_once, syncs):
    monkeypatch.setattr("nsqd.replication.incoming._MADE_AT_ONCE", at_once)
    shelf.begin("t")
    shelf.disk.calls.clear()

    shelf.send(*(Topic(1, number, f"t{number}") for number in range(2, 30)))

    called = [call.operation for call in shelf.disk.calls]
    assert called.count("make_folder") == 28
    assert called.count("sync_folder") == syncs


def test_frames_that_wait_are_bounded(shelf, shop, sent, monkeypatch):
    shelf.begin("other")
    shop.publish(b"x" * 1000)
    monkeypatch.setattr(incoming, "MAX_WAITING_BYTES", 5000)
    (append,) = sent.frames
    frame = encode(Appends(2, FIRST, 0, append.data))

    shelf.end.receive(encode(Topic(1, 2, "t")) + frame * 3)
    assert shelf.end.refused is None
    shelf.end.receive(frame * 3)

    assert shelf.refused.code == Refuse.BAD_FRAME


def test_unsynced_frames_of_one_log_are_not_acknowledged_as_durable(shelf, shop, sent):
    shelf.begin()
    shelf.send(Sync())
    assert shelf.end.synced == shelf.end.written
    shop.publish(b"one")
    before = shelf.end.written

    shelf.send(*sent.frames)
    assert shelf.end.synced == before
    shelf.end.tick()
    (job,) = shelf.end.jobs()
    # This frame is not part of the sync.
    shelf.end.receive(encode(part("checkpoint.0.tmp", 0, b"x")))
    job.run(shelf.disk)
    shelf.end.ended(job, None)

    assert shelf.end.synced == before + size(*sent.frames)
    assert shelf.end.synced < shelf.end.written


def test_idle_log_needs_no_sync(shelf):
    shelf.begin()
    shelf.send(Sync())

    shelf.end.tick()

    assert shelf.end.jobs() == []


# --- deleted topics ---


def test_deleted_topic_is_removed_and_may_be_made_again(shelf, shop, sent):
    shelf.begin()
    shop.publish(b"one")
    shelf.send(*sent.frames)

    answers = shelf.send(DeleteTopic(ORIGIN, "t", shop.store.segments.end), Topic(1, 2, "t"))

    assert answers == [Ack(shelf.end.written, shelf.end.synced)]
    assert shelf.names() == []
    shelf.send(Appends(2, FIRST, 0, sent.frames[0].data))
    assert shelf.content(FIRST) == primary_file(shop)


@pytest.mark.parametrize("is_answered", [False, True])
def test_topic_deleted_and_made_during_negotiation_has_only_new_files(shelf, shop, sent, is_answered):
    shelf.begin()
    shop.publish(b"one")
    shelf.send(*sent.frames, Sync())
    shelf.connect()
    shelf.end.receive(b"".join(map(encode, (LOG, Topic(1, 1, "t"), NOTHING))))
    (job,) = shelf.end.jobs()
    for step in ("answer", "delete") if is_answered else ("delete", "answer"):
        if step == "delete":
            shelf.end.receive(encode(DeleteTopic(ORIGIN, "t", shop.store.segments.end)))
        else:
            job.run(shelf.disk)
            shelf.end.ended(job, None)

    shelf.end.receive(encode(Snapshot(1, resume=True)) + encode(Topic(1, 2, "t")))
    shelf.send(Appends(2, FIRST, 0, sent.frames[0].data))

    assert shelf.end.refused is None
    assert shelf.content(FIRST) == primary_file(shop)


def test_deletion_is_written_when_folder_is_renamed(shelf, shop, sent):
    shelf.begin()
    shop.publish(b"one")
    shelf.send(*sent.frames)
    before = shelf.end.written

    shelf.end.receive(encode(DeleteTopic(ORIGIN, "t", shop.store.segments.end)))
    assert shelf.end.written == before
    shelf.end.work()

    assert shelf.end.written > before
    assert list(shelf.copies.topics(shelf.record)) == []


@pytest.mark.parametrize(("above", "stays"), [(0, False), (-1, True)])
def test_deletion_before_stream_removes_only_earlier_topic(shelf, shop, sent, above, stays):
    shelf.begin()
    shop.publish(b"one")
    shelf.send(*sent.frames)
    shelf.connect()

    answers = shelf.send(
        DeleteTopic(ORIGIN, "t", shop.store.segments.end + above), LOG, Topic(1, 1, "t"), NOTHING
    )

    (have,) = [one for one in answers if isinstance(one, Have)]
    assert bool(have.files) is stays
    assert Ready(1, has_copy=True, others=0) in answers


# --- faults ---


@pytest.mark.parametrize("operation", ["make_folder", "sync_folder", "rename", "sync", "open_write"])
def test_copy_that_cannot_be_made_ends_connection_with_sentence(shelf, operation):
    shelf.begin_negotiation()
    shelf.disk.fail(errno.EROFS, operation, times=None)

    shelf.send(Snapshot(1, resume=False))

    assert shelf.refused == Refuse(Refuse.DISK, "the replica's disk: read-only file system")
    shelf.disk.heal()
    shelf.connect()
    shelf.begin(resume=False)
    assert shelf.end.refused is None


def test_files_of_topic_that_is_new_in_stream_are_refused(shelf):
    shelf.begin("other")
    shelf.disk.make_folder(shelf.folder())
    shelf.disk.close(shelf.disk.create(shelf.folder() / FIRST))

    shelf.send(Topic(1, 2, "t"))

    assert shelf.refused == Refuse(Refuse.DAMAGED, "the copy has files of topic t already")


def test_frames_after_the_end_are_ignored(shelf, shop, sent):
    shelf.begin()
    shop.publish(b"one")
    log = shelf.end.log

    shelf.end.close()
    log.take(sent.frames[0], 0)

    assert shelf.end.jobs() == []
    assert shelf.names() == []
    assert log.unwritten_from is None
    assert DATA in shelf.record.path.parents
    assert len(records(shelf.copies)) == 1
