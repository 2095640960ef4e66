import errno

import pytest

from nsqd.log.disk import Disk
from nsqd.storage.spare import SPARE_BYTES, Spare
from tests.support.disks import FaultyDisk


def test_space_is_really_taken(tmp_path):
    spare = Spare(Disk(), tmp_path)

    spare.make()

    assert spare.there
    assert spare.path.stat().st_blocks * 512 >= SPARE_BYTES


def test_spare_is_released_once_and_made_again(tmp_path):
    spare = Spare(Disk(), tmp_path)
    spare.make()

    assert spare.release()
    assert not spare.path.exists()
    assert not spare.release()

    spare.make()
    assert spare.release()


def test_spare_of_earlier_start_is_taken_over(tmp_path):
    Spare(Disk(), tmp_path).make()

    spare = Spare(Disk(), tmp_path)
    spare.make()

    assert spare.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["open_write", "allocate"])
def test_spare_on_full_disk_leaves_no_file(tmp_path, call):
    disk = FaultyDisk(**{call: errno.ENOSPC})
    spare = Spare(disk, tmp_path)

    spare.make()

    assert not spare.there
    assert list(tmp_path.iterdir()) == []
    disk.faults.clear()
    spare.make()
    assert spare.there


def test_spare_is_not_refilled_on_nearly_full_disk(tmp_path):
    """Otherwise a checkpoint for which the spare was given up would never find the space."""

    class Small(Disk):
        free = SPARE_BYTES + 4096

        def allocate(self, fd, size):
            if size > self.free:
                raise OSError(errno.ENOSPC, "no space left on device")
            super().allocate(fd, size)

    disk = Small()
    spare = Spare(disk, tmp_path)
    spare.make()
    spare.release()

    spare.refill()
    assert not spare.there
    assert list(tmp_path.iterdir()) == []

    disk.free *= 2
    spare.refill()
    assert spare.there


def test_whether_there_is_room_is_tried_without_leaving_anything(tmp_path):
    disk = FaultyDisk()
    spare = Spare(disk, tmp_path)
    spare.make()

    assert spare.is_room_for(1000)
    disk.faults["allocate"] = errno.ENOSPC
    assert not spare.is_room_for(1000)
    assert [path.name for path in tmp_path.iterdir()] == ["spare"]


def test_spare_that_cannot_be_removed_is_not_given_up(tmp_path):
    disk = FaultyDisk()
    spare = Spare(disk, tmp_path)
    spare.make()
    disk.faults["remove"] = errno.EIO

    assert not spare.release()
    assert spare.there
