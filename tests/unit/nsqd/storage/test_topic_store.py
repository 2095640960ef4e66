import errno
from pathlib import Path

import pytest

from nsqd.engine.gaps import CannotRead, Gap, Why
from nsqd.storage.disk import Disk
from nsqd.storage.recovery import Mark
from nsqd.storage.topic_store import topic_folder
from tests.support.disks import FaultyDisk, FullDisk, ReadOnlyFolder
from tests.support.stores import FIRST, Shop, finish, noted

NO_SPACE = pytest.raises(OSError, match="No space left")


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    shop.new()
    yield shop
    shop.store.close()


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


# --- writing


def test_a_new_store_finds_what_the_old_one_wrote(shop):
    for _ in range(5):
        shop.publish(b"a", b"b")

    shop.reopen()

    assert (shop.store.first_seq, shop.store.end) == (FIRST, FIRST + 10)
    assert sorted(shop.bodies()) == list(range(FIRST, FIRST + 10))


def test_nothing_is_made_on_disk_before_something_is_stored(shop):
    assert not shop.folder.exists()
    assert (shop.store.first_seq, shop.store.end, shop.store.size) == (None, 0, 0)
    assert shop.store.read(FIRST) is None


def test_files_roll_at_their_size_and_all_are_read(shop):
    shop.new(segment=400)
    for _ in range(10):
        shop.publish(b"x" * 60)

    assert len(list(shop.folder.glob("*.log"))) == 5
    assert sorted(shop.bodies()) == list(range(FIRST, FIRST + 10))
    assert shop.gaps() == []


def test_with_segments_of_no_size_every_append_has_a_file(shop):
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
        assert shop.store.extents() == [(FIRST, FIRST + 1), (FIRST + 10, FIRST + 11)]
        assert shop.store.losses() == []
        found = shop.reopen(segment=1)
        assert [number for number, _ in noted(found)] == [1, 2, 3, 4]


def test_numbers_of_notes_go_on_after_a_restart(shop):
    shop.note(b"1", b"2")
    shop.reopen()
    shop.note(b"3")

    assert noted(shop.reopen()) == [(1, b"1"), (2, b"2"), (3, b"3")]
    assert shop.store.notes == 3


def test_numbers_of_notes_go_on_behind_those_that_only_the_checkpoint_knows(shop):
    shop.publish(b"a")
    shop.reopen(Mark(FIRST + 1, 7, FIRST + 1, FIRST + 1))
    shop.note(b"8")

    assert noted(shop.reopen()) == [(8, b"8")]


def test_on_a_full_disk_the_write_fails_and_the_next_one_needs_no_restart(shop):
    disk = FullDisk(room=1000)
    shop.new(disk)
    shop.publish(b"kept")
    with NO_SPACE:
        shop.publish(b"x" * 2000)
    with NO_SPACE:
        shop.publish(b"x" * 2000)
    assert len(list(shop.folder.glob("*.log"))) == 1

    disk.room = 100_000
    shop.publish(b"after")
    assert shop.bodies() == {FIRST: b"kept", FIRST + 3: b"after"}

    shop.reopen()
    assert shop.bodies() == {FIRST: b"kept", FIRST + 3: b"after"}
    assert [gap.why for gap in shop.gaps()] == [Why.UNUSED]


@pytest.mark.parametrize("room", range(0, 260, 13))
def test_a_first_write_that_fails_anywhere_leaves_nothing_behind(shop, room):
    shop.new(FullDisk(room))
    before = descriptors()
    with NO_SPACE:
        shop.publish(b"x" * 200)

    assert shop.names() == []
    assert descriptors() == before
    assert (shop.store.end, shop.store.unsynced) == (0, 0)


@pytest.mark.parametrize("room", range(0, 350, 13))
def test_a_crash_after_a_write_that_failed_anywhere_costs_nothing_that_was_stored(shop, room):
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


def test_a_folder_that_takes_no_files_fails_the_write_and_leaks_nothing(shop):
    shop.new(ReadOnlyFolder())
    before = descriptors()
    for _ in range(3):
        with pytest.raises(OSError, match="Read-only"):
            shop.publish(b"a")

    assert descriptors() == before


@pytest.mark.parametrize("call", ["make_folder", "create", "append"])
def test_a_call_that_fails_once_fails_one_write(shop, call):
    disk = FaultyDisk(**{call: errno.EMFILE})
    shop.new(disk)
    with pytest.raises(OSError, match="Too many open files"):
        shop.publish(b"refused")
    disk.faults.clear()

    shop.publish(b"stored")

    assert shop.bodies() == {FIRST + 1: b"stored"}


def test_a_folder_that_is_there_and_empty_is_used(shop):
    shop.folder.mkdir()

    shop.publish(b"a")

    assert shop.bodies() == {FIRST: b"a"}


def test_a_folder_with_something_unknown_in_it_is_not_written_to(shop):
    shop.folder.mkdir()
    (shop.folder / "00000001.log").write_bytes(b"somebody's")

    with pytest.raises(FileExistsError):
        shop.publish(b"a")
    assert shop.names() == ["00000001.log"]


# --- reading


def test_a_page_is_read_once_for_all_who_want_it(shop):
    disk = FaultyDisk()
    shop.new(disk)
    for n in range(10):
        shop.publish(b"%d" % n)
    shop.bodies()
    disk.calls.clear()

    shop.bodies()

    assert "read" not in disk.calls


def test_a_page_that_grew_is_read_again(shop):
    shop.publish(b"a")
    assert shop.bodies() == {FIRST: b"a"}

    shop.publish(b"b")

    assert shop.bodies() == {FIRST: b"a", FIRST + 1: b"b"}


def test_a_read_that_fails_is_said_and_works_again_later(shop):
    disk = FaultyDisk()
    shop.new(disk)
    shop.publish(b"a")
    disk.faults["open_read"] = errno.EMFILE
    for _ in range(3):
        with pytest.raises(CannotRead, match="too many open files"):
            shop.store.read(FIRST)
    disk.faults.clear()

    assert shop.bodies() == {FIRST: b"a"}
    assert shop.warnings == []


def test_a_file_that_goes_away_under_a_running_store_is_a_gap_that_is_told_once(shop):
    shop.publish(b"a", b"b")
    shop.log(1).unlink()

    for _ in range(3):
        assert shop.store.read(FIRST + 1) == Gap(FIRST, FIRST + 2, Why.REMOVED)
    assert len(shop.warnings) == 1
    assert "up to 2 messages from 3e8 on are lost: removed" in shop.warnings[0]


def test_a_file_that_is_cut_under_a_running_store_is_a_gap(shop):
    shop.publish(b"a")
    end = shop.store.size
    shop.publish(b"b")
    Disk().truncate(shop.log(1), end + 10)

    assert shop.bodies() == {FIRST: b"a"}
    assert shop.gaps() == [Gap(FIRST + 1, FIRST + 2, Why.DAMAGED)]


def test_what_lies_before_the_first_segment_is_gone_and_behind_the_last_is_not_yet(shop):
    shop.publish(b"a")

    assert shop.store.read(FIRST - 5) == Gap(FIRST - 5, FIRST, Why.REMOVED)
    assert shop.store.read(FIRST + 1) is None


def test_a_time_leads_to_less_than_a_page_before_its_first_message(shop):
    shop.new(segment=700_000)
    for n in range(10):
        block = shop.encoder.bodies([b"x" * 300_000], 100 * n)
        shop.store.append([block], [], block.first)

    for _ in range(2):
        assert [shop.store.seek(time) - FIRST for time in (0, 1, 100, 101, 450, 900, 5000)] == [
            0,
            0,
            0,
            1,
            4,
            8,
            9,
        ]
        shop.reopen(segment=700_000)


def test_the_node_that_wrote_the_log_is_known_after_a_restart(shop):
    shop.publish(b"a")
    shop.reopen()

    assert shop.store.origins() == {1}


# --- syncing


def test_a_sync_covers_what_was_appended_and_is_not_wanted_twice(shop):
    assert shop.store.begin_sync() is None
    shop.publish(b"a")
    job = shop.store.begin_sync()
    assert shop.store.begin_sync() is None
    assert shop.store.synced == FIRST

    assert finish(shop.store, job) is None

    assert shop.store.synced == FIRST + 1
    assert shop.store.begin_sync() is None


def test_a_note_alone_is_worth_a_sync(shop):
    shop.note(b"note")

    assert shop.store.begin_sync() is not None


def test_what_is_appended_while_a_sync_runs_is_for_the_next(shop):
    shop.publish(b"a")
    job = shop.store.begin_sync()
    shop.publish(b"b")
    finish(shop.store, job)

    assert shop.store.synced == FIRST + 1
    assert shop.sync() is None
    assert shop.store.synced == FIRST + 2


def test_a_sync_covers_segments_that_were_closed_since_the_last_one_and_then_their_folders(shop):
    synced = []

    class Watched(Disk):
        def sync(self, fd):
            synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)

        def sync_folder(self, path):
            synced.append(path.name)

    shop.new(Watched(), segment=1)
    for _ in range(3):
        shop.publish(b"x")

    assert shop.sync() is None

    parent = shop.folder.parent.name
    assert synced == ["00000001.log", "00000002.log", "00000003.log", "t.topic", parent]
    assert shop.store.begin_sync() is None
    assert sorted(path.name for path in shop.folder.glob("*.index")) == ["00000001.index", "00000002.index"]


def test_folders_are_synced_only_when_files_were_made(shop):
    disk = FaultyDisk()
    shop.new(disk)
    shop.publish(b"a")
    shop.sync()
    shop.publish(b"b")
    shop.sync()

    assert disk.calls.count("sync_folder") == 2


def test_a_file_whose_sync_failed_is_never_called_durable_and_not_written_to_again(shop):
    disk = FaultyDisk()
    shop.new(disk)
    shop.publish(b"a")
    disk.faults["sync"] = errno.EIO
    assert shop.sync() is not None
    disk.faults.clear()
    shop.publish(b"b")
    assert shop.sync() is None

    assert shop.store.synced == FIRST
    assert [path.name for path in shop.folder.glob("*.log")] != ["00000001.log"]
    assert shop.bodies() == {FIRST: b"a", FIRST + 1: b"b"}


def test_a_folder_whose_sync_failed_is_synced_with_the_next(shop):
    disk = FaultyDisk(sync_folder=errno.EIO)
    shop.new(disk)
    shop.publish(b"a")
    assert shop.sync() is not None
    disk.faults.clear()
    disk.calls.clear()
    shop.publish(b"b")
    assert shop.sync() is None

    assert disk.calls.count("sync_folder") == 2


def test_an_index_that_cannot_be_written_is_a_warning_and_no_more(shop):
    disk = FaultyDisk(replace=errno.ENOSPC)
    shop.new(disk, segment=1)
    shop.publish(b"a")
    shop.publish(b"b")

    assert shop.sync() is None
    assert shop.store.synced == FIRST + 2
    assert "cannot write" in shop.warnings[0]


@pytest.mark.parametrize("call", ["sync", "sync_folder", "append", "create", "replace"])
def test_no_descriptor_leaks_whatever_fails(shop, call):
    disk = FaultyDisk()
    shop.new(disk, segment=1)
    shop.publish(b"a")
    before = descriptors()
    for _ in range(5):
        disk.faults[call] = errno.EMFILE
        for _ in range(2):
            try:
                shop.publish(b"b")
            except OSError:
                continue
        shop.sync()
        disk.faults.clear()
        shop.publish(b"c")
        shop.sync()

    shop.store.close()
    shop.sync()
    assert descriptors() <= before


def test_without_a_free_descriptor_an_open_file_is_still_synced(shop):
    disk = FaultyDisk()
    shop.new(disk, segment=1)
    shop.publish(b"a")
    shop.publish(b"b")
    for call in ("create", "open_read", "open_write"):
        disk.faults[call] = errno.EMFILE

    shop.store.seal()

    assert shop.sync() is None
    assert shop.store.synced == FIRST + 2


# --- letting go


def test_segments_nobody_needs_are_removed_but_never_the_newest(shop):
    shop.new(segment=400)
    for _ in range(10):
        shop.publish(b"x" * 60)

    assert shop.store.drop_below(FIRST + 5, 0) == 2
    assert shop.store.first_seq == FIRST + 4
    assert shop.store.drop_below(FIRST + 10, 0) == 2
    assert shop.store.first_seq == FIRST + 8
    assert shop.names() == ["00000005.log"]


def test_a_segment_with_a_note_that_no_checkpoint_has_stays(shop):
    shop.new(segment=1)
    shop.publish(b"a", notes=(b"1",))
    shop.publish(b"b", notes=(b"2",))
    shop.publish(b"c")

    assert not shop.store.can_drop_below(FIRST + 3, 0)
    assert shop.store.drop_below(FIRST + 3, 0) == 0
    assert shop.store.drop_below(FIRST + 3, 1) == 1
    assert shop.store.first_seq == FIRST + 1


def test_what_will_be_kept_after_a_drop_is_known_before(shop):
    shop.new(segment=400)
    for _ in range(10):
        shop.publish(b"x" * 60)

    assert shop.store.kept_after_drop(FIRST + 1, 0) == 0
    kept_from = shop.store.kept_after_drop(FIRST + 5, 0)
    shop.store.drop_below(FIRST + 5, 0)
    assert kept_from == shop.store.first_seq


def test_a_large_newest_segment_goes_when_all_of_it_is_acknowledged(shop):
    shop.publish(b"x" * 1_100_000)
    assert shop.store.drop_below(FIRST + 1, 0) == 1
    assert shop.names() == []

    shop.publish(b"next")

    assert shop.bodies() == {FIRST + 1: b"next"}
    assert shop.store.read(FIRST) == Gap(FIRST, FIRST + 1, Why.REMOVED)


@pytest.mark.parametrize("error", [None, OSError(errno.EIO, "Input/output error")])
def test_a_segment_dropped_while_it_is_synced_is_closed_afterwards(shop, error):
    before = descriptors()
    shop.publish(b"x" * 1_100_000)
    job = shop.store.begin_sync()
    assert shop.store.drop_below(FIRST + 1, 0) == 1

    if error is None:
        finish(shop.store, job)
    else:
        shop.store.end_sync(job, error)
    shop.sync()

    assert descriptors() == before
    assert shop.names() == []
    shop.publish(b"next")
    assert shop.bodies() == {FIRST + 1: b"next"}


def test_a_drop_that_fails_half_way_can_be_done_again(shop):
    disk = FaultyDisk()
    shop.new(disk, segment=1)
    for _ in range(4):
        shop.publish(b"x")
    disk.faults["remove"] = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        shop.store.drop_below(FIRST + 2, 0)
    disk.faults.clear()

    assert shop.store.drop_below(FIRST + 2, 0) == 2
    assert sorted(shop.bodies()) == [FIRST + 2, FIRST + 3]


# --- the end of a topic


def test_a_retired_store_has_left_its_name_and_reads_nothing(shop):
    shop.publish(b"a")
    before = descriptors()

    doomed = shop.store.retire()

    assert not shop.folder.exists()
    assert doomed.name.endswith(".deleted")
    assert (shop.store.read(FIRST), shop.store.begin_sync()) == (Gap(FIRST, FIRST + 1, Why.REMOVED), None)
    assert descriptors() == before - 1


def test_a_store_that_was_never_written_to_is_retired_without_a_trace(shop):
    assert shop.store.retire() is None
    assert list(shop.folder.parent.iterdir()) == []


def test_nothing_is_stored_in_a_retired_store(shop):
    shop.publish(b"a")
    shop.store.retire()

    with pytest.raises(OSError, match="the topic was deleted"):
        shop.publish(b"b")
    assert not shop.folder.exists()


def test_a_topic_made_again_in_the_same_moment_has_a_store_of_its_own(shop):
    old = shop.store
    shop.publish(b"old", b"old")
    job = old.begin_sync()
    doomed = old.retire()
    fresh = shop.new()
    new = shop.publish(b"new")

    finish(old, job)
    old.close()
    Disk().remove_folder(doomed)

    assert shop.store is fresh
    assert shop.bodies() == {new.first: b"new"}
    assert shop.sync() is None
    shop.reopen()
    assert shop.bodies() == {new.first: b"new"}


def test_a_folder_that_cannot_be_renamed_is_not_retired(shop):
    disk = FaultyDisk()
    shop.new(disk)
    shop.publish(b"a")
    disk.faults["rename"] = errno.EIO

    with pytest.raises(OSError, match="Input/output error"):
        shop.store.retire()

    assert not shop.store.retired
    assert shop.bodies() == {FIRST: b"a"}


@pytest.mark.parametrize("name", ["..", ".", "a.b", "-"])
def test_no_topic_name_leads_out_of_the_data_path(tmp_path, name):
    assert topic_folder(tmp_path, name).resolve().parent == tmp_path
