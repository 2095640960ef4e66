"""What is written to the files of a copy, and what is refused."""

import errno
from pathlib import Path

import pytest

from nsqd.log.happened import Mark
from nsqd.replication.frames import (
    Appends,
    FilePart,
    Have,
    Refuse,
    Rename,
)
from tests.support.copied import (
    FIRST,
    Shelf,
    home_file,
    part,
    refused,
)
from tests.support.stores import Shop


def test_what_is_appended_at_home_is_in_the_copy_byte_for_byte(shelf, shop, said):
    shelf.begin()
    shop.publish(b"one", b"two", notes=(b"a note",))
    shop.publish(b"three")

    shelf.say(*said.frames)

    assert shelf.content(FIRST) == home_file(shop)


def test_a_copy_recovers_as_the_home_would(shelf, shop, said):
    shelf.begin()
    for number in range(50):
        shop.publish(b"%d" % number)
    shelf.say(*said.frames)

    again = Shop(shelf.folder().parent)
    again.new(shelf.disk)
    found = again.store.recover(Mark())

    assert again.store.extents() == shop.store.extents()
    assert [segment.size for segment in found.segments] == [one.size for one in shop.store.segments]


@pytest.mark.parametrize("offset", [0, 1, 100_000])
def test_what_does_not_join_is_refused(shelf, shop, said, offset):
    shelf.begin()
    shop.publish(b"one")
    shop.publish(b"two")
    shelf.say(said.frames[0])

    answers = shelf.say(Appends(1, FIRST, offset, said.frames[1].data))

    assert refused(answers).code == Refuse.DAMAGED
    assert shelf.content(FIRST) == said.frames[0].data


def test_a_log_that_begins_in_the_middle_is_refused(shelf, shop, said):
    shelf.begin()
    shop.publish(b"one")
    shop.publish(b"two")

    assert "no such file" in refused(shelf.say(said.frames[1])).sentence


def test_a_part_that_was_damaged_on_its_way_is_refused(shelf, shop):
    shelf.begin()
    shop.publish(b"one")
    whole = home_file(shop)

    assert "damaged on its way" in refused(shelf.say(FilePart(1, FIRST, 0, 5, whole))).sentence
    assert shelf.disk.names(shelf.folder().parent) == []


def test_a_checkpoint_takes_the_place_of_the_older_one_and_grows(shelf):
    shelf.begin()

    shelf.say(part("checkpoint.0.tmp", 0, b"whole"), Rename(1, "checkpoint.0.tmp", "checkpoint.0"))
    shelf.say(part("checkpoint.0", 5, b" and more"))
    assert shelf.content("checkpoint.0") == b"whole and more"
    shelf.say(part("checkpoint.0.tmp", 0, b"new"), Rename(1, "checkpoint.0.tmp", "checkpoint.0"))

    assert shelf.content("checkpoint.0") == b"new"


def test_a_file_that_was_not_finished_is_not_told_of(shelf, shop):
    shelf.begin()
    shop.publish(b"one")
    shelf.say(part("00000001.1.log.new", 0, home_file(shop)))

    shelf.connect()
    assert Have(1, ()) in shelf.begin()
    after = Shelf(shelf.disk.killed())
    assert Have(1, ()) in after.begin()
    assert after.names() == []


def test_what_is_written_to_a_copy_stays_inside_it(shelf):
    shelf.begin()
    shelf.say(part("checkpoint.0.tmp", 0, b"x"))

    assert refused(shelf.say(Rename(1, "checkpoint.0.tmp", "00000001.log"))).code == Refuse.DAMAGED
    assert shelf.disk.names(Path("/data")) == ["carried"]


def test_a_full_disk_ends_the_connection_with_a_sentence_and_what_was_there_stays(shelf, shop, said):
    shelf.begin()
    shop.publish(b"one")
    shop.publish(b"x" * 9000)
    shelf.say(said.frames[0])
    shelf.disk.fail(errno.ENOSPC, "append", partial=100)

    answers = shelf.say(said.frames[1])

    assert refused(answers) == Refuse(Refuse.DISK, "the keeper's disk: no space left on device")
    shelf.connect()
    (have,) = [one for one in shelf.begin() if isinstance(one, Have)]
    assert have.files[0].size == len(said.frames[0].data)
    shelf.say(said.frames[1])
    assert shelf.content(FIRST) == home_file(shop)


def test_a_checkpoint_of_which_a_sync_was_faster_than_its_name_gets_it_all_the_same(shelf):
    shelf.begin()

    shelf.say(part("checkpoint.0.tmp", 0, b"whole"))
    shelf.link.sync()
    shelf.work()
    shelf.say(Rename(1, "checkpoint.0.tmp", "checkpoint.0"))

    assert shelf.content("checkpoint.0") == b"whole"
