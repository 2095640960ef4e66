"""The jobs of a copy that wait for the disk."""

import errno
import random

from nsqd.replication.frames import (
    Ack,
    CopiedFile,
    CopiedTopic,
    CopyState,
    Have,
    Refuse,
    Remove,
    Rename,
    Seal,
    SyncCopy,
)
from nsqd.replication.framing import encode
from tests.support.copied import (
    FIRST,
    HELLO,
    SECOND,
    Shelf,
    home_file,
    part,
    refused,
)


def test_a_file_is_filled_in_parts_and_has_an_index_when_it_is_whole(shelf, shop):
    shelf.begin()
    for number in range(9):
        shop.publish(b"%d" % number)
    whole = home_file(shop)

    shelf.say(part(FIRST, 0, whole[:200]), part(FIRST, 200, whole[200:]), Seal(1, FIRST, len(whole)))

    assert shelf.content(FIRST) == whole
    assert "00000001.index" in shelf.names()
    shelf.connect()
    segment = shop.store.segments[0]
    assert (
        Have(1, (CopiedFile(FIRST, segment.header.salt, len(whole), segment.first, segment.next, 0),))
        in shelf.begin()
    )


def test_a_compacted_file_takes_the_place_of_others_when_it_is_whole(shelf, shop):
    shelf.begin()
    shop.publish(b"one")
    whole = home_file(shop)
    shelf.say(part(FIRST, 0, whole), part(SECOND, 0, whole))
    compacted = "00000001.1.log"

    shelf.say(part(f"{compacted}.new", 0, whole[:100]))
    assert compacted not in shelf.names()
    shelf.say(
        part(f"{compacted}.new", 100, whole[100:]),
        Rename(1, f"{compacted}.new", compacted),
        Remove(1, FIRST),
        Remove(1, SECOND),
    )

    assert [name for name in shelf.names() if name.endswith(".log")] == [compacted]
    assert shelf.content(compacted) == whole


def test_what_could_not_be_synced_is_not_said_to_be(shelf, shop, said):
    shelf.begin()
    shop.publish(b"one")
    shelf.disk.fail(errno.EIO, "sync")

    answers = shelf.say(*said.frames, SyncCopy())

    assert refused(answers).code == Refuse.DISK
    assert all(one.synced == 0 for one in answers if isinstance(one, Ack))


def test_what_is_to_be_durable_is_acknowledged_when_it_is(shelf, shop, said):
    shelf.begin()
    shop.publish(b"one")

    *_, ack = shelf.say(*said.frames, SyncCopy())

    assert ack == Ack(shelf.link.written, shelf.link.written)
    after = Shelf(shelf.disk.after_power_cut(random.Random(1)))
    assert after.content(FIRST) == home_file(shop)


def test_a_copy_is_durably_whole_when_its_files_have_their_final_names(shelf, shop, said):
    shelf.begin()
    shop.publish(b"one")
    whole = home_file(shop)
    filled = CopyState(1, CopyState.FILLED)
    for frame in (part(f"{FIRST}.new", 0, whole), Rename(1, f"{FIRST}.new", FIRST), filled, SyncCopy()):
        shelf.link.receive(encode(frame))

    while shelf.link.synced < shelf.link.written:
        jobs = shelf.link.jobs()
        assert jobs
        for job in jobs:
            job.run(shelf.disk)
            shelf.link.ended(job, None)
            if shelf.link.synced == shelf.link.written:
                break

    after = Shelf(shelf.disk.after_power_cut(random.Random(1)))
    assert after.content(FIRST) == whole


def test_a_job_that_failed_keeps_no_later_one_from_being_done(shelf, shop):
    shelf.begin()
    shop.publish(b"one")
    whole = home_file(shop)
    shelf.say(part(FIRST, 0, whole), part(SECOND, 0, whole))
    shelf.disk.fail(errno.EIO, "sync")
    assert refused(shelf.say(Seal(1, FIRST, len(whole)))).code == Refuse.DISK

    shelf.connect()
    shelf.begin()
    shelf.say(Seal(1, FIRST, len(whole)), Remove(1, SECOND))
    (folder,) = shelf.link.folders

    assert folder.is_settled
    assert [name for name in shelf.names() if name.startswith("0000")] == [
        FIRST.replace(".log", ".index"),
        FIRST,
    ]


def test_a_copy_is_looked_at_when_a_job_of_the_connection_before_has_ended(shelf, shop):
    shelf.begin()
    shop.publish(b"one")
    shelf.say(part(FIRST, 0, home_file(shop)))
    before = shelf.link
    before.receive(encode(Remove(1, FIRST)))
    (job,) = before.jobs()

    shelf.connect()
    shelf.say(HELLO)
    assert not [one for one in shelf.say(CopiedTopic(1, "t")) if isinstance(one, Have)]
    job.run(shelf.disk)
    before.ended(job, None)
    shelf.work()

    assert [one for one in shelf.answers() if isinstance(one, Have)] == [Have(1, ())]
