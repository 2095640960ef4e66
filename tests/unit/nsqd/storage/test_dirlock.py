import os

import pytest

from nsqd.storage.dirlock import DataPathLocked, lock_data_path


def test_a_data_path_belongs_to_one_at_a_time(tmp_path):
    first = lock_data_path(tmp_path)
    with pytest.raises(
        DataPathLocked, match=r"cannot flock directory .* - resource temporarily unavailable \("
    ):
        lock_data_path(tmp_path)

    os.close(first)

    os.close(lock_data_path(tmp_path))


def test_a_missing_data_path_is_named(tmp_path):
    with pytest.raises(DataPathLocked, match=r"open .*nowhere: no such file or directory"):
        lock_data_path(tmp_path / "nowhere")
