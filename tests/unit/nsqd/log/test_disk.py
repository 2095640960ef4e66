"""The real disk: short writes, reads past the end, and files that exist or do not."""

import contextlib
import resource
from pathlib import Path

import pytest

from nsqd.log.disk import Disk, error_text
from tests.support.descriptors import open_below


@pytest.fixture
def disk():
    return Disk()


def test_failure_is_told_in_words_of_system_or_in_its_own():
    assert error_text(OSError(28, "No space left on device")) == "no space left on device"
    assert error_text(OSError("The disk is away")) == "the disk is away"


@contextlib.contextmanager
def full_after(size):
    """Let files grow to *size* bytes and no further: a write across that limit is short at first.

    Use it for one call only, because the output of the tests may also go to a file.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def mode(path):
    return path.stat().st_mode & 0o777


# --- appending


@pytest.mark.parametrize(
    "pieces",
    [[b"one"], [b"one", b"two"], [b"x%d" % n for n in range(5000)], [b"", b"a", b""], [b"y" * 3_000_000] * 3],
)
def test_append_writes_buffers_in_order(disk, tmp_path, pieces):
    fd = disk.create(tmp_path / "file")
    disk.append(fd, pieces)
    disk.append(fd, pieces)
    disk.close(fd)

    assert (tmp_path / "file").read_bytes() == 2 * b"".join(pieces)


@pytest.mark.parametrize("pieces", [[b"x" * 10_000], [b"x" * 100] * 100, [b"x"] * 10_000])
def test_write_cut_short_is_gone_on_with_and_then_fails_for_reason(disk, tmp_path, pieces):
    fd = disk.create(tmp_path / "file")

    with pytest.raises(OSError, match="File too large"), full_after(5000):
        disk.append(fd, pieces)

    disk.close(fd)
    assert (tmp_path / "file").read_bytes() == b"x" * 5000


def test_new_file_is_private_and_must_be_new(disk, tmp_path):
    disk.close(disk.create(tmp_path / "file"))

    assert mode(tmp_path / "file") == 0o600
    with pytest.raises(FileExistsError):
        disk.create(tmp_path / "file")


# --- reading


def test_read_gives_what_lies_there_and_less_only_at_the_end(disk, tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")
    fd = disk.open_read(tmp_path / "file")

    assert [disk.read(fd, *where) for where in ((4, 2), (100, 6), (5, 10), (5, 99), (0, 3))] == [
        b"2345",
        b"6789",
        b"",
        b"",
        b"",
    ]
    assert disk.size(fd) == 10
    disk.close(fd)


def test_read_that_fails_closes_file(tmp_path):
    class Broken(Disk):
        def read(self, fd, size, offset):
            raise OSError(5, "Input/output error")

    (tmp_path / "file").write_bytes(b"content")
    before = open_below(tmp_path)
    with pytest.raises(OSError, match="Input/output error"):
        Broken().read_file(tmp_path / "file")

    assert open_below(tmp_path) == before


# --- writing in place


def test_writing_over_part_leaves_the_rest(disk, tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")
    fd = disk.open_write(tmp_path / "file")
    disk.write_at(fd, b"xy", 4)
    disk.close(fd)

    assert (tmp_path / "file").read_bytes() == b"0123xy6789"


def test_writing_in_place_makes_file_if_there_is_none(disk, tmp_path):
    fd = disk.open_write(tmp_path / "file")
    disk.allocate(fd, 1000)
    disk.write_at(fd, b"end", 997)
    disk.close(fd)

    assert (tmp_path / "file").read_bytes() == bytes(997) + b"end"
    assert mode(tmp_path / "file") == 0o600


def test_writing_in_place_cut_short_fails_for_reason(disk, tmp_path):
    fd = disk.open_write(tmp_path / "file")
    with pytest.raises(OSError, match="File too large"), full_after(5):
        disk.write_at(fd, b"0123456789", 0)
    disk.close(fd)


def test_cutting_keeps_beginning(disk, tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")

    disk.truncate(tmp_path / "file", 4)

    assert (tmp_path / "file").read_bytes() == b"0123"
    with pytest.raises(FileNotFoundError):
        disk.truncate(tmp_path / "none", 0)


# --- replacing


@pytest.mark.parametrize("durable", [True, False])
def test_file_is_replaced_as_a_whole_and_nothing_is_left_over(disk, tmp_path, durable):
    for content in (b"old", b"new and longer", b""):
        disk.replace(tmp_path / "file", content, durable=durable)
        assert (tmp_path / "file").read_bytes() == content

    assert disk.names(tmp_path) == ["file"]
    assert mode(tmp_path / "file") == 0o600


def test_replacement_that_fails_leaves_old_file(disk, tmp_path):
    disk.replace(tmp_path / "file", b"old", durable=True)
    before = open_below(tmp_path)
    with pytest.raises(OSError, match="File too large"), full_after(5):
        disk.replace(tmp_path / "file", b"0123456789", durable=True)

    assert (tmp_path / "file").read_bytes() == b"old"
    assert open_below(tmp_path) == before


def test_replace_ignores_leftover_of_interrupted_one(disk, tmp_path):
    (tmp_path / "file.tmp").write_bytes(b"half of something longer")

    disk.replace(tmp_path / "file", b"new", durable=False)

    assert disk.names(tmp_path) == ["file"]
    assert disk.read_file(tmp_path / "file") == b"new"


# --- names and folders


def test_names_are_sorted_and_absent_folder_is_not_an_empty_one(disk, tmp_path):
    for name in ("b", "a", "c"):
        (tmp_path / name).touch()

    assert disk.names(tmp_path) == ["a", "b", "c"]
    with pytest.raises(FileNotFoundError):
        disk.names(tmp_path / "none")


def test_folder_is_private_and_made_once(disk, tmp_path):
    disk.make_folder(tmp_path / "folder")

    assert mode(tmp_path / "folder") == 0o700
    with pytest.raises(FileExistsError):
        disk.make_folder(tmp_path / "folder")


def test_remove_of_missing_file_is_ignored(disk, tmp_path):
    disk.remove(tmp_path / "none")
    disk.remove_folder(tmp_path / "none")
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "deep" / "file").touch()
    (tmp_path / "file").touch()

    disk.remove(tmp_path / "file")
    disk.remove_folder(tmp_path / "folder")

    assert disk.names(tmp_path) == []


def test_copy_of_file_has_another_identity_and_renamed_one_the_same(disk, tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "copy").write_bytes(b"content")
    identity = disk.identity(tmp_path / "file")
    disk.rename(tmp_path / "file", tmp_path / "moved")

    assert disk.identity(tmp_path / "moved") == identity
    assert disk.identity(tmp_path / "copy") != identity


def test_syncing_works_on_files_and_folders_and_leaks_nothing(disk, tmp_path):
    before = open_below(tmp_path)
    fd = disk.create(tmp_path / "file")
    disk.sync(fd)
    disk.close(fd)
    disk.sync_folder(tmp_path)
    with pytest.raises(FileNotFoundError):
        disk.sync_folder(tmp_path / "none")
    with pytest.raises(NotADirectoryError):
        disk.sync_folder(tmp_path / "file")

    assert open_below(tmp_path) == before


def test_descriptors_are_closed_in_child_processes(disk, tmp_path):
    (tmp_path / "old").touch()
    opened = [
        disk.create(tmp_path / "new"),
        disk.open_read(tmp_path / "old"),
        disk.open_write(tmp_path / "old"),
    ]
    flags = [int(Path(f"/proc/self/fdinfo/{fd}").read_text().split()[3], 8) for fd in opened]
    for fd in opened:
        disk.close(fd)

    close_on_exec = 0o2000000
    assert all(flag & close_on_exec for flag in flags)
