"""Removal of unneeded segments and whole stores."""

import errno

import pytest

from nsqd.log.gaps import Gap, Why
from tests.support.descriptors import open_below
from tests.support.disks import FaultyDisk
from tests.support.stores import FIRST, finish


def test_unneeded_segments_are_removed_but_never_newest(shop):
    shop.new(segment=400)
    for _ in range(10):
        shop.publish(b"x" * 60)

    assert shop.drop(FIRST + 5, 0) == 2
    assert shop.store.segments.first_seq == FIRST + 4
    assert shop.drop(FIRST + 10, 0) == 2
    assert shop.store.segments.first_seq == FIRST + 8
    assert shop.names() == ["00000005.log"]


def test_segment_with_note_that_no_checkpoint_has_stays(shop):
    shop.new(segment=1)
    shop.publish(b"a", notes=(b"1",))
    shop.publish(b"b", notes=(b"2",))
    shop.publish(b"c")

    assert shop.store.cleaner.log_start_after_drop(FIRST + 3, 0) is None
    assert shop.drop(FIRST + 3, 0) == 0
    assert shop.drop(FIRST + 3, 1) == 1
    assert shop.store.segments.first_seq == FIRST + 1


def test_segment_kept_for_note_blocks_no_later_segment(shop):
    shop.new(segment=1)
    shop.publish(b"a", notes=(b"1",))
    shop.publish(b"b")
    shop.publish(b"c", notes=(b"2",))
    shop.publish(b"d")
    shop.publish(b"e")

    assert shop.store.cleaner.log_start_after_drop(FIRST + 5, 0) == FIRST + 4
    assert shop.drop(FIRST + 5, 0) == 2
    assert shop.bodies() == {FIRST: b"a", FIRST + 2: b"c", FIRST + 4: b"e"}

    shop.reopen()

    assert shop.names() == ["00000001.log", "00000003.log", "00000005.log"]
    assert shop.store.segments.notes == 2


def test_large_newest_segment_goes_when_all_of_it_is_acknowledged(shop):
    shop.publish(b"x" * 1_100_000)
    assert shop.drop(FIRST + 1, 0) == 1
    assert shop.names() == []

    shop.publish(b"next")

    assert shop.bodies() == {FIRST + 1: b"next"}
    assert shop.store.segments.read(FIRST) == Gap(FIRST, FIRST + 1, Why.REMOVED)


@pytest.mark.parametrize("error", [None, OSError(errno.EIO, "Input/output error")])
def test_segment_dropped_while_it_is_synced_is_closed_afterwards(shop, error, tmp_path):
    before = len(open_below(tmp_path))
    shop.publish(b"x" * 1_100_000)
    job = shop.store.appender.begin_sync()
    assert shop.drop(FIRST + 1, 0) == 1

    if error is None:
        finish(shop.store, job)
    else:
        shop.store.appender.end_sync(job, error)
    shop.sync()

    assert len(open_below(tmp_path)) == before
    assert shop.names() == []


def test_files_that_cannot_be_removed_are_tried_again(shop):
    disk = FaultyDisk()
    shop.new(disk, segment=1)
    for _ in range(4):
        shop.publish(b"x")
    disk.faults["remove"] = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        shop.drop(FIRST + 2, 0)
    assert len(shop.names()) == 4
    disk.faults.clear()

    assert shop.store.cleaner.has_removable
    shop.store.cleaner.remove_files()
    assert not shop.store.cleaner.has_removable
    assert len(shop.names()) == 2
    assert sorted(shop.bodies()) == [FIRST + 2, FIRST + 3]


def test_file_that_cannot_be_removed_keeps_no_other_and_leaves_no_hole(shop):
    shop.new(segment=1)
    for _ in range(4):
        shop.publish(b"x")
    (shop.folder / "00000002.index").mkdir()

    with pytest.raises(OSError, match=r"00000002\.index"):
        shop.drop(FIRST + 3, 0)

    assert [name for name in shop.names() if name.endswith(".log")] == ["00000002.log", "00000004.log"]
    (shop.folder / "00000002.index").rmdir()
    shop.reopen(shop.mark(), segment=1)
    assert shop.store.segments.losses(FIRST + 3) == []


def test_removed_segments_leave_nothing_in_cache(shop):
    shop.new(segment=400)
    for _ in range(10):
        shop.publish(b"x" * 60)
    shop.bodies()
    large = shop.publish(b"x" * (1 << 21))
    assert shop.store.segments.cache.size > 0

    # The last one is still open, so it is sealed when it is removed.
    shop.drop(large.next, 0)

    assert shop.names() == []
    assert shop.store.segments.cache.size == 0
