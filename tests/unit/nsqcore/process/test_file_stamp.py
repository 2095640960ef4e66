import os

import pytest

from nsqcore.process.file_stamp import stamp_of


def test_file_that_is_written_or_exchanged_has_another_stamp(tmp_path):
    link, first, second = (tmp_path / name for name in ("link", "first", "second"))
    for file in (first, second):
        file.write_text("same")
        os.utime(file, ns=(5, 5))
    link.symlink_to(first)
    before = stamp_of(link)
    assert stamp_of(link) == before

    link.unlink()
    link.symlink_to(second)  # of the same age and size

    assert stamp_of(link) != before
    os.utime(second, ns=(6, 6))
    assert stamp_of(link) != stamp_of(first)


def test_file_that_is_not_there_has_none(tmp_path):
    with pytest.raises(FileNotFoundError):
        stamp_of(tmp_path / "gone")
