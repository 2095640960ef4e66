"""Folders and files that a power cut leaves as they were made."""

import random

import pytest

from nsqd.log.disk import make_folders, sync_file
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.nsqd.replication.replica_end import DATA


@pytest.mark.parametrize("seed", range(5))
def test_folders_and_synced_files_survive_power_cut(seed):
    disk = SimulatedDisk(DATA)
    path = DATA / "a" / "b" / "c"

    make_folders(disk, path)
    make_folders(disk, path)
    disk.append(disk.create(path / "file"), [b"content"])
    sync_file(disk, path / "file")
    sync_file(disk, path / "missing")
    disk.sync_folder(path)

    after = disk.after_power_cut(random.Random(seed))
    assert after.read_file(path / "file") == b"content"
