"""Changes to a rehearsal are visible through it, and nowhere else."""

import errno

import pytest

from nsqd.data.rehearsal import Rehearsal


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_bytes(b"0123456789")
    return root


@pytest.fixture
def disk(root, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    disk = Rehearsal(root, scratch)
    yield disk
    assert {path.name: path.read_bytes() for path in root.iterdir()} == {"a": b"0123456789"}


def test_file_that_is_removed_is_gone_there_only(disk, root):
    disk.remove(root / "a")
    assert disk.names(root) == []
    with pytest.raises(FileNotFoundError):
        disk.read_file(root / "a")
    assert disk.changes == ["remove a"]


def test_removing_what_is_not_there_is_no_change(disk, root):
    disk.remove(root / "b")
    assert disk.changes == []


def test_file_is_cut(disk, root):
    disk.truncate(root / "a", 4)
    assert disk.read_file(root / "a") == b"0123"
    assert disk.changes == ["cut a to 4 bytes"]


def test_rewritten_bytes_are_no_change(disk, root):
    disk.rewrite(root / "a", 3)
    assert disk.changes == []


def test_bytes_are_written_over(disk, root):
    fd = disk.open_write(root / "a")
    disk.write_at(fd, b"xx", 3)
    disk.sync(fd)
    disk.close(fd)
    assert disk.read_file(root / "a") == b"012xx56789"
    assert disk.changes == ["write 2 bytes at 3 of a"]


def test_renamed_file_is_found_by_its_new_name_also_after_change(disk, root):
    disk.truncate(root / "a", 2)
    disk.rename(root / "a", root / "b")
    assert disk.names(root) == ["b"]
    assert disk.read_file(root / "b") == b"01"
    assert disk.changes[-1] == "rename a to b"


def test_new_file_is_written_to_its_end(disk, root):
    fd = disk.create(root / "new")
    disk.append(fd, [b"one", b"two"])
    disk.close(fd)
    disk.replace(root / "other", b"whole", durable=True)
    assert disk.read_file(root / "new") == b"onetwo"
    assert disk.read_file(root / "other") == b"whole"
    assert disk.names(root) == ["a", "new", "other"]
    with pytest.raises(FileExistsError):
        disk.create(root / "a")


def test_file_may_come_again_after_it_was_removed(disk, root):
    disk.remove(root / "a")
    disk.replace(root / "a", b"new", durable=False)
    assert disk.names(root) == ["a"]
    assert disk.read_file(root / "a") == b"new"


@pytest.mark.parametrize("method", ["make_folder", "remove_folder"])
def test_folders_are_not_rehearsed(disk, root, method):
    with pytest.raises(OSError) as raised:
        getattr(disk, method)(root / "folder")
    assert raised.value.errno == errno.EROFS
