"""The simulated disk: it answers as the real one does, and a power cut leaves only possible states."""

import errno
import os
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsqd.log.disk import Disk
from tests.support.simulated_disk import SimulatedDisk
from tests.support.volume import PAGE

DATA = Path("/data")


@pytest.fixture
def disk():
    return SimulatedDisk(DATA)


def written(disk, name, content, *, synced=False):
    fd = disk.create(DATA / name)
    disk.append(fd, [content])
    if synced:
        disk.sync(fd)
        disk.sync_folder(DATA)
    return fd


def content(disk, name):
    try:
        return disk.read_file(DATA / name)
    except FileNotFoundError:
        return None


def cuts(disk, name, tries=300):
    """Everything a file may hold after a power cut."""
    rng = random.Random(1)
    return {content(disk.after_power_cut(rng), name) for _ in range(tries)}


# --- the same as the real one ---

NAMES = st.sampled_from(["a", "b", "dir", "dir/a", "dir/b", "dir2", "dir2/c"])
SIZES = st.sampled_from([0, 1, 5, 511, 4095, 4096, 4097, 9000])
OFFSETS = st.sampled_from([0, 1, 100, 4090, 4096, 5000])
SLOTS = st.integers(0, 3)
OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(["create", "open_read", "open_write"]), NAMES, SLOTS),
    st.tuples(st.just("append"), SLOTS, st.lists(SIZES, min_size=1, max_size=3)),
    st.tuples(st.just("read"), SLOTS, SIZES, OFFSETS),
    st.tuples(st.just("write_at"), SLOTS, SIZES, OFFSETS),
    st.tuples(st.sampled_from(["size", "sync", "close"]), SLOTS),
    st.tuples(st.just("allocate"), SLOTS, SIZES),
    st.tuples(st.just("truncate"), NAMES, SIZES),
    st.tuples(st.just("replace"), NAMES, SIZES),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(
        st.sampled_from(
            ["read_file", "remove", "names", "make_folder", "remove_folder", "sync_folder", "identity"]
        ),
        NAMES,
    ),
)


class Player:
    """Plays operations on one disk and notes the answers."""

    def __init__(self, disk, root):
        self.disk = disk
        self.root = root
        self.open = {}
        self.labels = {}
        self.labelled = 0
        self.fill = 0
        self.folders = set()

    def play(self, operation):
        try:
            return self._play(*operation)
        except OSError as error:
            return errno.errorcode[error.errno]
        finally:
            self._forget_what_went()

    def label(self, path):
        """A number that a file keeps while it exists, and that no other existing file has.

        On the real disk a later file may get the inode of a removed one; the labels hide that.
        """
        number = self.disk.identity(path)
        if number not in self.labels:
            self.labelled += 1
            self.labels[number] = self.labelled
        return self.labels[number]

    def _forget_what_went(self):
        there = self._identities(self.root) if self.labels else set()
        self.labels = {number: label for number, label in self.labels.items() if number in there}

    def _identities(self, folder):
        found = set()
        for name in self.disk.names(folder):
            found.add(self.disk.identity(folder / name))
            if self.is_folder(folder / name):
                found |= self._identities(folder / name)
        return found

    def is_folder(self, path):
        try:
            self.disk.names(path)
        except OSError:
            return False
        return True

    def bytes(self, size):
        self.fill = self.fill % 250 + 1
        return bytes([self.fill]) * size

    def _play(self, name, first, *rest):
        disk = self.disk
        if name in {"create", "open_read", "open_write"}:
            slot = rest[0]
            fd = getattr(disk, name)(self.root / first)
            if slot in self.open:
                disk.close(self.open[slot][1])
                self.folders.discard(self.open[slot][1])
            self.open[slot] = name, fd
            if self.is_folder(self.root / first):
                self.folders.add(fd)
            return None
        if isinstance(first, int):
            if first not in self.open:
                return None
            kind, fd = self.open[first]
            if name == "close":
                del self.open[first]
            if name == "append":
                # nsqd appends only to files opened for that; in the others the position would matter.
                return disk.append(fd, [self.bytes(size) for size in rest[0]]) if kind == "create" else None
            if name == "write_at":
                return disk.write_at(fd, self.bytes(rest[0]), rest[1])
            answer = getattr(disk, name)(fd, *rest)
            if name == "size" and fd in self.folders:
                # File systems differ in the size of a folder.
                return None
            return answer
        path = self.root / first
        if name == "rename":
            return disk.rename(path, self.root / rest[0])
        if name == "replace":
            return disk.replace(path, self.bytes(rest[0]), durable=True)
        if name == "identity":
            return self.label(path)
        return getattr(disk, name)(path, *rest)

    def tree(self, folder=None):
        folder = folder or self.root
        found = {}
        for name in self.disk.names(folder):
            try:
                found[name] = self.tree(folder / name)
            except NotADirectoryError:
                found[name] = self.disk.read_file(folder / name)
        return found


@settings(max_examples=200, deadline=None)
@example([("make_folder", "a"), ("replace", "a", 5)])
@given(st.lists(OPERATIONS, max_size=40))
def test_same_operations_get_the_same_answers_as_from_real_disk(operations):
    with tempfile.TemporaryDirectory() as folder:
        real = Player(Disk(), Path(folder))
        simulated = Player(SimulatedDisk(DATA), DATA)
        for operation in operations:
            assert simulated.play(operation) == real.play(operation), operation

        assert simulated.tree() == real.tree()
        for _, fd in real.open.values():
            os.close(fd)


# --- what a power cut leaves ---


def test_killed_process_leaves_everything_it_wrote(disk):
    written(disk, "a", b"not synced")

    assert content(disk.killed(), "a") == b"not synced"


def test_power_cut_after_kill_may_lose_earlier_writes(disk):
    written(disk, "a", b"not synced")

    assert None in cuts(disk.killed(), "a")


def test_file_synced_with_its_folder_survives(disk):
    written(disk, "a", b"x" * 9000, synced=True)

    assert cuts(disk, "a") == {b"x" * 9000}


def test_synced_file_whose_folder_was_not_may_be_missing_but_is_never_damaged(disk):
    fd = written(disk, "a", b"x" * 9000)
    disk.sync(fd)

    assert cuts(disk, "a") == {None, b"x" * 9000}


def test_unsynced_tail_may_be_there_in_any_part(disk):
    fd = written(disk, "a", b"a" * PAGE, synced=True)
    for letter in (b"b", b"c", b"d"):
        disk.append(fd, [letter * PAGE])

    left = cuts(disk, "a", 2000)

    assert {len(found) // PAGE for found in left} == {1, 2, 3, 4}
    zeros = b"\0" * PAGE
    assert b"a" * PAGE + b"b" * PAGE + b"c" * PAGE in left, "a prefix"
    assert b"a" * PAGE + b"b" * PAGE + zeros + b"d" * PAGE in left, "a hole"
    assert b"a" * PAGE + 3 * zeros in left, "a size without data"
    assert any(found[: 2 * PAGE] == b"a" * PAGE + b"b" * 512 + zeros[512:] for found in left), "a torn page"
    assert all(found.startswith(b"a" * PAGE) for found in left)


def test_rewritten_page_may_have_any_version_after_power_cut(disk):
    fd = disk.open_write(DATA / "a")
    disk.write_at(fd, b"1" * 100, 0)
    disk.sync(fd)
    disk.sync_folder(DATA)
    disk.write_at(fd, b"2" * 100, 0)
    disk.write_at(fd, b"3" * 100, 0)

    assert cuts(disk, "a") == {b"1" * 100, b"2" * 100, b"3" * 100}


@pytest.mark.parametrize("new", [b"new", None], ids=["replaced", "removed"])
def test_replaced_or_removed_file_may_be_old_one_until_its_folder_is_synced(disk, new):
    written(disk, "a", b"old", synced=True)
    if new:
        disk.replace(DATA / "a", new, durable=True)
    else:
        disk.remove(DATA / "a")

    assert cuts(disk, "a") == {b"old", new}

    disk.sync_folder(DATA)

    assert cuts(disk, "a") == {new}


def test_file_that_was_replaced_without_sync_may_be_empty(disk):
    written(disk, "a", b"old", synced=True)
    disk.replace(DATA / "a", b"new", durable=False)
    disk.sync_folder(DATA)

    assert cuts(disk, "a") == {b"", b"\0\0\0", b"new"}


def test_changes_of_folder_may_be_lost_in_any_order(disk):
    written(disk, "a", b"")
    written(disk, "b", b"")
    rng = random.Random(1)

    left = {tuple(disk.after_power_cut(rng).names(DATA)) for _ in range(300)}

    assert left == {(), ("a",), ("b",), ("a", "b")}


def test_folder_without_synced_entry_is_lost_with_its_files(disk):
    disk.make_folder(DATA / "topic")
    fd = disk.create(DATA / "topic" / "a")
    disk.append(fd, [b"x"])
    disk.sync(fd)
    disk.sync_folder(DATA / "topic")

    assert cuts(disk, "topic/a") == {None, b"x"}


def test_synced_files_survive_power_cut(disk):
    disk.make_folder(DATA / "topic")
    disk.replace(DATA / "topic" / "a", b"x", durable=False)
    disk.sync_all()

    assert cuts(disk, "topic/a") == {b"x"}


def test_pages_of_failed_sync_never_become_durable(disk):
    fd = written(disk, "a", b"1", synced=True)
    disk.append(fd, [b"2"])
    disk.fail(errno.EIO, "sync")
    with pytest.raises(OSError, match="Input/output"):
        disk.sync(fd)
    disk.sync(fd)

    assert b"1\0" in cuts(disk, "a")


def test_copied_folder_has_other_inodes(disk):
    written(disk, "a", b"x")
    disk.copied(DATA, Path("/copy"))

    assert disk.read_file(Path("/copy/a")) == b"x"
    assert disk.identity(Path("/copy/a")) != disk.identity(DATA / "a")


# --- faults ---


def test_write_can_fail_half_way(disk):
    fd = disk.create(DATA / "a")
    disk.fail(errno.EIO, "append", partial=3)
    with pytest.raises(OSError, match="Input/output"):
        disk.append(fd, [b"12", b"345"])

    assert content(disk, "a") == b"123"


def test_read_can_end_early(disk):
    written(disk, "a", b"12345")
    disk.fail(0, "read", partial=2)

    assert content(disk, "a") == b"12"
    assert content(disk, "a") == b"12345"


def test_full_disk_takes_part_of_write_and_more_after_removal(disk):
    disk.capacity = 2 * PAGE
    written(disk, "a", b"a" * PAGE)
    fd = disk.create(DATA / "b")
    with pytest.raises(OSError, match="No space left"):
        disk.append(fd, [b"b" * (PAGE + 1)])
    assert content(disk, "b") == b"b" * PAGE
    with pytest.raises(OSError, match="No space left"):
        disk.append(fd, [b"b"])

    disk.remove(DATA / "a")
    with pytest.raises(OSError, match="No space left"):
        disk.append(fd, [b"b"])
    disk.close(next(fd for fd, entry in disk._open.items() if entry.path == "/data/a"))
    disk.append(fd, [b"b"])

    assert content(disk, "b") == b"b" * (PAGE + 1)


def test_allocated_bytes_can_be_written_on_full_disk(disk):
    disk.capacity = 2 * PAGE
    fd = disk.open_write(DATA / "a")
    disk.allocate(fd, 2 * PAGE)
    with pytest.raises(OSError, match="No space left"):
        disk.append(disk.create(DATA / "b"), [b"x"])

    disk.write_at(fd, b"x" * 2 * PAGE, 0)

    assert content(disk, "a") == b"x" * 2 * PAGE


def test_open_files_stay_within_limit(disk):
    disk.max_open = 1
    fd = disk.create(DATA / "a")
    with pytest.raises(OSError, match="Too many open files"):
        disk.create(DATA / "b")
    disk.close(fd)

    assert disk.names(DATA) == ["a"]
    assert disk.open_paths == []


def test_descriptor_of_removed_file_is_leak_and_one_for_reading_is_not(disk):
    disk.close(disk.create(DATA / "a"))
    disk.close(disk.create(DATA / "b"))
    disk.open_read(DATA / "a")
    disk.open_read(DATA / "b")

    disk.remove(DATA / "b")

    assert disk.leaks() == ["/data/b"]


def test_file_that_is_open_twice_or_to_be_written_is_leak(disk):
    disk.create(DATA / "a")
    disk.close(disk.create(DATA / "b"))
    disk.open_read(DATA / "b")
    disk.open_read(DATA / "b")

    assert disk.leaks() == ["/data/a", "/data/b", "/data/b"]
