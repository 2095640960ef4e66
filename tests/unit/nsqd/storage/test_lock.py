import os

import pytest

from nsqd.storage.lock import PATIENCE_SECONDS, DataPathLocked, lock_data_path, wait_for_data_path


def test_data_path_belongs_to_one_at_a_time(tmp_path):
    first = lock_data_path(tmp_path)
    with pytest.raises(
        DataPathLocked, match=r"cannot flock directory .* - resource temporarily unavailable \("
    ):
        lock_data_path(tmp_path)

    os.close(first)

    os.close(lock_data_path(tmp_path))


def test_missing_data_path_is_named(tmp_path):
    with pytest.raises(DataPathLocked, match=r"open .*nowhere: no such file or directory"):
        lock_data_path(tmp_path / "nowhere")


class Waiting:
    """A clock that only its own sleeps move; it holds the lock for *release_at_s* seconds."""

    def __init__(self, path, release_at_s):
        self.now_s = 100.0
        self.said = []
        self._release_at_s = self.now_s + release_at_s
        self._held = lock_data_path(path)

    def clock(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds
        if self._held is not None and self.now_s >= self._release_at_s:
            self.release()

    def release(self):
        if self._held is not None:
            os.close(self._held)
            self._held = None


def test_start_waits_for_process_before_it_to_end_and_says_so_once(tmp_path):
    before = Waiting(tmp_path, release_at_s=3)

    os.close(wait_for_data_path(tmp_path, before.said.append, clock=before.clock, sleep=before.sleep))

    assert 103 <= before.now_s < 104
    assert before.said == [f"waiting 10s for another process to release {tmp_path}"]


def test_data_path_that_stays_in_use_is_refused_after_some_seconds(tmp_path):
    other = Waiting(tmp_path, release_at_s=1000)

    with pytest.raises(DataPathLocked, match="possibly in use by another instance"):
        wait_for_data_path(tmp_path, other.said.append, clock=other.clock, sleep=other.sleep)

    other.release()
    assert PATIENCE_SECONDS <= other.now_s - 100 < PATIENCE_SECONDS + 1


def test_missing_data_path_fails_without_waiting(tmp_path):
    said = []

    with pytest.raises(DataPathLocked, match="no such file"):
        wait_for_data_path(tmp_path / "nowhere", said.append)

    assert said == []
