"""A topic's store: stored messages are read back, whatever fails in between."""

import errno

import pytest

from nsqd.log.disk import Disk
from nsqd.log.encoder import Batch
from nsqd.log.gaps import CannotRead, Gap, Why
from nsqd.log.tail_records import CheckpointPosition
from nsqd.storage.topic_log import topic_folder
from tests.support.descriptors import open_below
from tests.support.disks import FaultyDisk, FullDisk
from tests.support.stores import FIRST, finish, noted

NO_SPACE = pytest.raises(OSError, match="No space left")


# --- writing


def test_appends_to_segments_of_no_size_have_own_files(shop):
    shop.new(segment=1)
    shop.note(b"note")
    for _ in range(4):
        shop.publish(b"x")

    assert len(list(shop.folder.glob("*.log"))) == 5
    assert sorted(shop.bodies()) == list(range(FIRST, FIRST + 4))
    shop.reopen(segment=1)
    assert sorted(shop.bodies()) == list(range(FIRST, FIRST + 4))


def test_segments_of_notes_alone_are_no_messages_and_hide_none(shop):
    shop.new(segment=1)
    shop.note(b"1")
    shop.note(b"2")
    shop.publish(b"a")
    shop.note(b"3")
    shop.encoder.skip_to(FIRST + 10)
    shop.note(b"4")
    shop.publish(b"b")

    for _ in range(2):
        assert shop.bodies() == {FIRST: b"a", FIRST + 10: b"b"}
        assert shop.gaps() == [Gap(FIRST + 1, FIRST + 10, Why.UNUSED)]
        assert shop.store.segments.extents() == [(FIRST, FIRST + 1), (FIRST + 10, FIRST + 11)]
        assert shop.store.segments.losses() == []
        found = shop.reopen(segment=1)
        assert [number for number, _ in noted(found)] == [1, 2, 3, 4]


def test_numbers_of_notes_go_on_after_restart(shop):
    shop.note(b"1", b"2")
    shop.reopen()
    shop.note(b"3")

    assert noted(shop.reopen()) == [(1, b"1"), (2, b"2"), (3, b"3")]
    assert shop.store.segments.notes == 3


def test_numbers_of_notes_go_on_behind_those_that_only_checkpoint_knows(shop):
    shop.publish(b"a")
    shop.reopen(CheckpointPosition(FIRST + 1, 7, FIRST + 1, FIRST + 1))
    shop.note(b"8")

    assert noted(shop.reopen()) == [(8, b"8")]


def test_failed_append_leaves_no_bytes_in_file(shop):
    disk = FullDisk(room=10_000)
    shop.new(disk)
    shop.publish(b"kept")
    size = shop.log(1).stat().st_size
    disk.room = 1000
    with NO_SPACE:
        shop.publish(b"x" * 2000, notes=(b"note",))

    assert shop.log(1).stat().st_size == size == shop.store.segments.size
    disk.room = 10_000
    shop.publish(b"after", notes=(b"note",))
    assert len(list(shop.folder.glob("*.log"))) == 1
    assert noted(shop.reopen()) == [(1, b"note")]
    assert shop.bodies() == {FIRST: b"kept", FIRST + 2: b"after"}
    assert [gap for gap in shop.gaps() if gap.is_loss] == []


def test_failed_append_that_cannot_be_truncated_ends_its_file(shop):
    disk = FaultyDisk()
    shop.new(disk)
    shop.publish(b"kept")
    disk.faults.update(append=errno.EIO, truncate_open=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        shop.publish(b"refused")

    disk.faults.clear()
    shop.publish(b"after")
    assert len(list(shop.folder.glob("*.log"))) == 2
    assert shop.bodies() == {FIRST: b"kept", FIRST + 2: b"after"}


def test_file_that_is_of_no_use_and_cannot_be_removed_is_removed_later(shop):
    disk = FaultyDisk(append=errno.ENOSPC, remove=errno.EROFS)
    shop.new(disk)
    with NO_SPACE:
        shop.publish(b"a")
    assert shop.log(1).exists()
    assert shop.store.cleaner.has_removable

    disk.faults.clear()
    shop.store.cleaner.remove_files()

    assert not shop.log(1).exists()


@pytest.mark.parametrize("room", range(0, 260, 13))
def test_first_write_that_fails_anywhere_leaves_nothing_behind(shop, room):
    shop.new(FullDisk(room))
    before = open_below(shop.folder.parent)
    with NO_SPACE:
        shop.publish(b"x" * 200)

    assert shop.names() == []
    assert open_below(shop.folder.parent) == before
    assert (shop.store.segments.end, shop.store.appender.unsynced) == (0, 0)


@pytest.mark.parametrize("room", range(0, 350, 13))
def test_crash_after_failed_append_loses_no_stored_message(shop, room):
    disk = FullDisk(10_000)
    shop.new(disk)
    shop.publish(b"kept", notes=(b"1",))
    disk.room = room
    with NO_SPACE:
        shop.publish(b"refused" * 40, notes=(b"2",))

    found = shop.reopen()

    assert shop.bodies() == {FIRST: b"kept"}
    assert noted(found) in ([(1, b"1")], [(1, b"1"), (2, b"2")])
    assert [gap for gap in shop.gaps() if gap.is_loss] == []


@pytest.mark.parametrize("call", ["make_folder", "create", "append"])
def test_call_that_fails_once_fails_one_write(shop, call):
    disk = FaultyDisk(**{call: errno.EMFILE})
    shop.new(disk)
    with pytest.raises(OSError, match="Too many open files"):
        shop.publish(b"refused")
    disk.faults.clear()

    shop.publish(b"stored")

    assert shop.bodies() == {FIRST + 1: b"stored"}


def test_empty_existing_folder_is_used(shop):
    shop.folder.mkdir()

    shop.publish(b"a")

    assert shop.bodies() == {FIRST: b"a"}


def test_folder_with_something_unknown_in_it_is_not_written_to(shop):
    shop.folder.mkdir()
    (shop.folder / "00000001.log").write_bytes(b"another's")

    with pytest.raises(FileExistsError):
        shop.publish(b"a")
    assert shop.names() == ["00000001.log"]


# --- reading


def test_page_is_read_once_for_all_who_want_it(shop):
    disk = FaultyDisk()
    shop.new(disk)
    for n in range(10):
        shop.publish(b"%d" % n)
    shop.bodies()
    disk.calls.clear()

    shop.bodies()

    assert "read" not in disk.calls


def test_page_that_grew_is_read_again(shop):
    shop.publish(b"a")
    assert shop.bodies() == {FIRST: b"a"}

    shop.publish(b"b")

    assert shop.bodies() == {FIRST: b"a", FIRST + 1: b"b"}


def test_read_that_fails_is_said_and_works_again_later(shop):
    disk = FaultyDisk()
    shop.new(disk)
    shop.publish(b"a")
    disk.faults["open_read"] = errno.EMFILE
    for _ in range(3):
        with pytest.raises(CannotRead, match="too many open files"):
            shop.store.segments.read(FIRST)
    disk.faults.clear()

    assert shop.bodies() == {FIRST: b"a"}
    assert shop.warnings == []


def test_file_that_goes_away_under_running_store_is_gap_that_is_told_once(shop):
    shop.publish(b"a", b"b")
    shop.log(1).unlink()

    for _ in range(3):
        assert shop.store.segments.read(FIRST + 1) == Gap(FIRST, FIRST + 2, Why.REMOVED)
    assert len(shop.warnings) == 1
    assert "up to 2 messages from 3e8 on are lost: removed" in shop.warnings[0]


def test_numbers_outside_files_of_topic_are_unused(shop):
    shop.publish(b"a")

    assert shop.store.segments.read(FIRST - 5) == Gap(FIRST - 5, FIRST, Why.UNUSED)
    assert shop.store.segments.losses(FIRST - 5) == []
    assert shop.store.segments.read(FIRST + 1) is None


def test_numbers_skipped_by_restart_stay_unused_without_file_before_them(shop):
    shop.publish(b"a", b"b")
    shop.encoder.skip_to(FIRST + 100)
    shop.reopen(shop.mark())
    shop.publish(b"c")
    shop.reopen(shop.mark())

    assert shop.drop(FIRST + 2, 0) == 1
    for _ in range(2):
        assert shop.store.segments.read(FIRST) == Gap(FIRST, FIRST + 2, Why.REMOVED)
        assert shop.store.segments.read(FIRST + 2) == Gap(FIRST + 2, FIRST + 100, Why.UNUSED)
        assert shop.store.segments.losses(FIRST + 2) == []
        shop.reopen(shop.mark())


def test_missing_oldest_file_is_loss_down_to_where_log_is_kept_from(shop):
    shop.new(segment=1)
    for body in (b"a", b"b", b"c"):
        shop.publish(body)
    shop.sync()
    mark = shop.mark()
    shop.log(1).unlink()
    shop.reopen(mark)

    assert shop.store.segments.losses(FIRST) == [Gap(FIRST, FIRST + 1, Why.REMOVED)]
    assert shop.store.segments.losses(FIRST + 1) == []

    for number in (2, 3):
        shop.log(number).unlink()
    shop.reopen(mark)

    assert shop.store.segments.losses(FIRST + 1) == [Gap(FIRST + 1, FIRST + 3, Why.REMOVED)]
    assert shop.store.segments.losses(FIRST + 3) == []


def test_time_leads_to_less_than_a_page_before_its_first_message(shop):
    shop.new(segment=700_000)
    for n in range(10):
        block = shop.encoder.batch(Batch([b"x" * 300_000]), 100 * n)
        shop.store.appender.append([block], [], block.first)

    for _ in range(2):
        assert [shop.store.segments.seek(time) - FIRST for time in (0, 1, 100, 101, 450, 900, 5000)] == [
            0,
            0,
            0,
            1,
            4,
            8,
            9,
        ]
        shop.reopen(segment=700_000)


def test_node_that_wrote_log_is_known_after_restart(shop):
    shop.publish(b"a")
    shop.reopen()

    assert shop.store.segments.origins() == {1}


# --- the end of a topic


def test_files_name_their_log_also_after_restart(shop):
    shop.new(segment=1)
    shop.publish(b"a")
    shop.reopen(segment=1)
    shop.publish(b"b")
    ids = {one.header.log_id for one in shop.store.segments}
    first = shop.store.appender.log_id

    shop.store.delete()
    shop.new()

    assert (len(shop.store.segments), ids) == (0, {first})
    assert shop.store.appender.log_id not in {0, first}


def test_retired_store_has_left_its_name_and_reads_nothing(shop):
    shop.publish(b"a")
    before = open_below(shop.folder.parent)

    deleted = shop.store.delete()

    assert not shop.folder.exists()
    assert deleted.name.endswith(".deleted")
    assert (shop.store.segments.read(FIRST), shop.store.appender.begin_sync()) == (
        Gap(FIRST, FIRST + 1, Why.REMOVED),
        None,
    )
    assert len(open_below(shop.folder.parent)) == len(before) - 1


def test_store_that_was_never_written_to_is_retired_without_trace(shop):
    assert shop.store.delete() is None
    assert list(shop.folder.parent.iterdir()) == []


def test_deleted_log_accepts_no_append(shop):
    shop.publish(b"a")
    shop.store.delete()

    with pytest.raises(OSError, match="the topic was deleted"):
        shop.publish(b"b")
    assert not shop.folder.exists()


def test_topic_made_again_in_the_same_moment_has_store_of_its_own(shop):
    old = shop.store
    shop.publish(b"old", b"old")
    job = old.appender.begin_sync()
    deleted = old.delete()
    fresh = shop.new()
    new = shop.publish(b"new")

    finish(old, job)
    old.appender.close()
    Disk().remove_folder(deleted)

    assert shop.store is fresh
    assert shop.bodies() == {new.first: b"new"}
    assert shop.sync() is None
    shop.reopen()
    assert shop.bodies() == {new.first: b"new"}


def test_folder_that_cannot_be_renamed_is_not_retired(shop):
    disk = FaultyDisk()
    shop.new(disk)
    shop.publish(b"a")
    disk.faults["rename"] = errno.EIO

    with pytest.raises(OSError, match="Input/output error"):
        shop.store.delete()

    assert not shop.store.segments.deleted
    assert shop.bodies() == {FIRST: b"a"}


@pytest.mark.parametrize("name", ["..", ".", "a.b", "-"])
def test_topic_names_stay_in_data_path(tmp_path, name):
    assert topic_folder(tmp_path, name).resolve().parent == tmp_path
