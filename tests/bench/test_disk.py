"""Disk usage is measured while files and folders are removed."""

import os

from bench.disk import disk_in_use


def test_the_bytes_of_all_files_are_counted(tmp_path):
    (tmp_path / "one").write_bytes(b"123")
    (tmp_path / "in/it").mkdir(parents=True)
    (tmp_path / "in/it/two").write_bytes(b"4567")

    assert disk_in_use(tmp_path) == 7
    assert disk_in_use(tmp_path / "gone") == 0


def test_what_is_removed_while_it_is_looked_at_counts_as_nothing(tmp_path, monkeypatch):
    for name in ("kept", "t.deleted"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"123")
    (tmp_path / "file.deleted").write_bytes(b"4567")
    list_folder = os.scandir

    def list_and_lose(folder):
        """The server removes a folder before it is listed, and a file before it is looked at."""
        if os.fspath(folder).endswith("t.deleted"):
            (tmp_path / "t.deleted/file").unlink()
            (tmp_path / "t.deleted").rmdir()
        found = list(list_folder(folder))
        (tmp_path / "file.deleted").unlink(missing_ok=True)
        return Listing(found)

    monkeypatch.setattr(os, "scandir", list_and_lose)

    assert disk_in_use(tmp_path) == 3


class Listing:
    """What os.scandir returns: an iterator that is also a context manager."""

    def __init__(self, entries):
        self._entries = iter(entries)

    def __iter__(self):
        return self._entries

    def __next__(self):
        return next(self._entries)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass
