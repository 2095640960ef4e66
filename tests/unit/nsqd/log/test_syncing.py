"""What is durable after a sync of a topic's store, and after a sync of which a part fails."""

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from nsqd.log.disk import Disk, opening_to_sync
from tests.support.descriptors import open_below
from tests.support.disks import FaultyDisk
from tests.support.stores import FIRST, finish


def test_sync_covers_what_was_appended_and_is_not_wanted_twice(shop):
    assert shop.store.appender.begin_sync() is None
    shop.publish(b"a")
    job = shop.store.appender.begin_sync()
    assert shop.store.appender.begin_sync() is None
    assert shop.store.segments.synced == FIRST

    assert finish(shop.store, job) is None

    assert shop.store.segments.synced == FIRST + 1
    assert shop.store.appender.begin_sync() is None


def test_note_is_durable_when_sync_that_was_begun_behind_it_has_worked(shop):
    shop.note(b"one")
    job = shop.store.appender.begin_sync()
    shop.note(b"two")
    assert shop.mark().synced_notes == 0
    finish(shop.store, job)
    assert shop.mark().synced_notes == 1
    assert shop.sync() is None
    assert shop.mark().synced_notes == 2


def test_append_during_sync_is_left_to_the_next_sync(shop):
    shop.publish(b"a")
    job = shop.store.appender.begin_sync()
    shop.publish(b"b")
    finish(shop.store, job)

    assert shop.store.segments.synced == FIRST + 1
    assert shop.sync() is None
    assert shop.store.segments.synced == FIRST + 2


def test_sync_covers_segments_closed_since_the_last_one_and_their_folders(shop):
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
    assert shop.store.appender.begin_sync() is None
    assert sorted(path.name for path in shop.folder.glob("*.index")) == ["00000001.index", "00000002.index"]


def test_folders_are_synced_only_when_files_were_made(shop):
    disk = FaultyDisk()
    shop.new(disk)
    shop.publish(b"a")
    shop.sync()
    shop.publish(b"b")
    shop.sync()

    assert disk.calls.count("sync_folder") == 2


@pytest.mark.parametrize("call", ["sync", "sync_folder"])
def test_failed_sync_ends_appends_until_restart(shop, call):
    disk = FaultyDisk()
    shop.new(disk)
    shop.publish(b"a")
    failing = shop.store.appender.begin_sync()
    shop.publish(b"b", notes=(b"note",))
    disk.faults[call] = errno.EIO
    assert finish(shop.store, failing) is not None
    disk.faults.clear()

    with pytest.raises(OSError, match="no publishes until a restart: an fsync failed - input/output error"):
        shop.publish(b"c")

    assert shop.store.appender.begin_sync() is None
    assert (shop.mark().synced, shop.mark().synced_notes) == (FIRST, 0)
    assert shop.bodies() == {FIRST: b"a", FIRST + 1: b"b"}
    shop.reopen(shop.mark())
    shop.publish(b"c")
    assert shop.sync() is None
    assert [*shop.bodies().values()] == [b"a", b"b", b"c"]


def test_removed_file_is_never_called_durable(shop):
    shop.publish(b"a")
    assert shop.sync() is None
    shop.publish(b"b")
    shop.log(1).unlink()
    shop.store.appender.reopen_if_removed()
    shop.publish(b"c")

    error = shop.sync()
    assert error is not None
    assert error.errno == errno.ENOENT
    assert shop.bodies() == {FIRST + 2: b"c"}
    shop.publish(b"d")
    assert shop.sync() is None


def test_removed_durable_file_fails_no_sync(shop):
    shop.publish(b"a")
    assert shop.sync() is None
    shop.log(1).unlink()
    shop.store.appender.reopen_if_removed()
    shop.publish(b"b")

    assert shop.sync() is None


class NoDescriptors(Disk):
    """No folder can be opened while ``full``, and no file that is closed."""

    full = True

    def open_read(self, path):
        self._open_one()
        return super().open_read(path)

    def sync_folder(self, path):
        with opening_to_sync():
            self._open_one()
        super().sync_folder(path)

    def _open_one(self):
        if self.full:
            raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize("closed", [False, True])
def test_sync_that_lacks_descriptors_is_repeated_and_loses_nothing(shop, closed):
    disk = NoDescriptors()
    shop.new(disk)
    shop.publish(b"a", notes=(b"note",))
    shop.store.appender.seal()
    shop.publish(b"b")
    if closed:
        assert shop.store.appender.close_file()

    assert shop.sync().errno == errno.EMFILE
    assert (shop.store.appender.unsynced, shop.store.appender.failed) == (3, "")
    disk.full = False
    shop.publish(b"c")

    assert shop.sync() is None
    assert shop.store.segments.synced == shop.store.segments.end
    assert shop.mark().synced_notes == 1
    assert len(shop.store.segments) == 2


def test_index_that_cannot_be_written_is_warning_and_no_more(shop):
    disk = FaultyDisk(replace=errno.ENOSPC)
    shop.new(disk, segment=1)
    shop.publish(b"a")
    shop.publish(b"b")

    assert shop.sync() is None
    assert shop.store.segments.synced == FIRST + 2
    assert "cannot write" in shop.warnings[0]


@pytest.mark.parametrize("call", ["sync", "sync_folder", "append", "create", "replace"])
def test_failures_leak_no_descriptor(shop, call, tmp_path):
    disk = FaultyDisk()
    shop.new(disk, segment=1)
    shop.publish(b"a")
    before = len(open_below(tmp_path))
    for _ in range(5):
        for error in (errno.EMFILE, None):
            disk.faults = {} if error is None else {call: error}
            with suppress(OSError):
                shop.publish(b"b")
            shop.sync()

    shop.store.appender.close()
    shop.sync()
    assert len(open_below(tmp_path)) <= before


def test_open_file_is_synced_without_free_descriptor(shop):
    disk = FaultyDisk()
    shop.new(disk, segment=1)
    shop.publish(b"a")
    shop.publish(b"b")
    for call in ("create", "open_read", "open_write"):
        disk.faults[call] = errno.EMFILE

    shop.store.appender.seal()

    assert shop.sync() is None
    assert shop.store.segments.synced == FIRST + 2


def test_file_that_is_removed_during_sync_fails_that_sync_and_no_other(shop):
    shop.new()
    shop.publish(b"1")
    # As when more logs are written to than may be open.
    assert shop.store.appender.close_file()
    job = shop.store.appender.begin_sync()
    shop.log(1).unlink()
    shop.publish(b"2")

    error = finish(shop.store, job)

    assert error is not None
    assert error.errno == errno.ENOENT
    assert not shop.store.appender.failed
    assert shop.sync() is None
