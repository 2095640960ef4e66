"""No number is used before it is reserved durably, whatever happened to the file or the data path."""

import errno
import shutil
import struct
from itertools import pairwise

import pytest
from xxhash import xxh3_64_intdigest

from nsqd.engine.numbering import Sequences
from nsqd.log.disk import Disk
from nsqd.log.layout import NewerVersion
from nsqd.storage.reservation import FILE_NAME, STRIDE, Reservation
from tests.support.disks import DyingDisk, FaultyDisk
from tests.support.stores import flip

SLOT = 512
FLOOR = 1_000_000


class Life:
    """One start of a node in a data path."""

    def __init__(self, data_path, disk=None):
        self.warnings = []
        self.sequences = Sequences()
        self.reservation = Reservation(disk or Disk(), data_path, self.sequences)
        self.reserved, self.jump = self.reservation.load(self.warnings.append)

    @property
    def floor(self):
        return self.reserved + self.jump

    def open(self, floor=0):
        self.reservation.open(max(floor, self.floor))
        return self


def test_next_life_begins_above_all_that_could_have_been_used(tmp_path):
    first = Life(tmp_path).open(FLOOR)
    first.reservation.extend(FLOOR + 3 * STRIDE)

    second = Life(tmp_path)

    assert (second.floor, second.jump) == (first.sequences.reserved, 0)
    assert second.reservation.identity
    assert second.reservation.identity == first.reservation.identity
    assert second.warnings == []


def test_reservation_extends_below_half_a_stride(tmp_path):
    life = Life(tmp_path).open(FLOOR)
    before = life.reservation.path.read_bytes()
    assert not life.reservation.wants_more

    life.reservation.extend(FLOOR + STRIDE // 2 - 1)
    assert life.reservation.path.read_bytes() == before

    life.sequences.note_used(FLOOR + STRIDE // 2 + 1)
    assert life.reservation.wants_more
    life.reservation.extend(life.sequences.used)
    assert life.sequences.reserved == life.sequences.used + STRIDE
    assert not life.reservation.wants_more


def test_publish_larger_than_a_stride_is_reserved_whole(tmp_path):
    life = Life(tmp_path).open(FLOOR)

    life.reservation.extend(FLOOR + 10 * STRIDE)

    assert life.sequences.reserved == FLOOR + 11 * STRIDE


@pytest.mark.parametrize("call", ["open_write", "write_at", "sync"])
def test_failed_write_reserves_nothing(tmp_path, call):
    disk = FaultyDisk()
    life = Life(tmp_path, disk).open(FLOOR)
    reserved = life.sequences.reserved
    disk.faults[call] = errno.EIO
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output error"):
            life.reservation.extend(FLOOR + STRIDE)
        assert life.sequences.reserved == reserved
    disk.faults.clear()

    life.reservation.extend(FLOOR + STRIDE)

    assert Life(tmp_path).floor == life.sequences.reserved == FLOOR + 2 * STRIDE


@pytest.mark.parametrize("lives", range(4))
def test_life_killed_at_any_call_leads_to_no_number_twice(tmp_path, lives):
    used = FLOOR
    for _ in range(lives):
        used = Life(tmp_path).open(used).sequences.reserved
    for calls in range(40):
        disk = DyingDisk(calls)
        reservation = Reservation(disk, tmp_path, Sequences())
        try:
            reserved, jump = reservation.load(pytest.fail)
            reservation.open(max(used, reserved + jump))
            used = reservation.sequences.reserved
            reservation.extend(used + STRIDE)
            used = reservation.sequences.reserved
        except OSError:
            after = Life(tmp_path)
            assert max(FLOOR, after.floor) >= used
            continue
        return
    pytest.fail("it never came to an end")


# --- damage


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("extended", [0, 1])
def test_damaged_slot_leaves_the_other_and_skips_more(tmp_path, place, extended):
    life = Life(tmp_path).open(FLOOR)
    for _ in range(1 + extended):
        life.reservation.extend(life.sequences.reserved)
    for bit in range(8, 64 * 8, 41):
        flip(life.reservation.path, place * SLOT * 8 + bit)
        after = Life(tmp_path)
        assert after.floor >= life.sequences.reserved
        assert after.reservation.identity == life.reservation.identity
        flip(life.reservation.path, place * SLOT * 8 + bit)


def test_damaged_reservation_continues_far_above(tmp_path):
    Life(tmp_path).open(FLOOR)
    (tmp_path / FILE_NAME).write_bytes(b"x" * 2 * SLOT)

    life = Life(tmp_path)

    assert life.jump > 1 << 40
    assert "is damaged" in life.warnings[0]


@pytest.mark.parametrize("content", [b"", bytes(2 * SLOT)])
def test_file_that_was_never_written_is_none(tmp_path, content):
    (tmp_path / FILE_NAME).write_bytes(content)

    life = Life(tmp_path)

    assert (life.floor, life.warnings) == (0, [])


def test_file_of_newer_version_stops_start(tmp_path):
    life = Life(tmp_path).open(FLOOR)
    content = bytearray(life.reservation.path.read_bytes())
    at = SLOT
    struct.pack_into("<H", content, at + 8, 3)
    struct.pack_into("<Q", content, at + 56, xxh3_64_intdigest(bytes(content[at : at + 56])))
    life.reservation.path.write_bytes(content)

    with pytest.raises(NewerVersion):
        Life(tmp_path)


def test_file_that_cannot_be_read_stops_start(tmp_path):
    Life(tmp_path).open(FLOOR)

    with pytest.raises(OSError, match="Input/output error"):
        Life(tmp_path, FaultyDisk(read_file=errno.EIO))


# --- copies


def test_copied_data_path_has_other_numbers_and_another_name(tmp_path):
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    first = Life(original).open(FLOOR)
    shutil.copytree(original, copy)

    second = Life(copy)
    assert second.jump > 1 << 40
    assert "is a copy" in second.warnings[0]
    second.open()

    assert second.reservation.identity != first.reservation.identity
    third = Life(copy)
    assert (third.jump, third.warnings) == (0, [])
    assert third.reservation.identity == second.reservation.identity


def test_backup_in_place_of_what_was_removed_is_copy(tmp_path):
    """On ext4 the new file gets the inode of the removed one."""
    path, backup = tmp_path / "data", tmp_path / "backup"
    path.mkdir()
    Life(path).open(FLOOR)
    shutil.copytree(path, backup)
    life = Life(path).open()
    given, before = life.sequences.used, Disk().identity(life.reservation.path)
    shutil.rmtree(path)
    shutil.copytree(backup, path)
    if Disk().identity(life.reservation.path) == before == life.reservation.path.stat().st_ino:
        pytest.skip("the file system here gave the same inode and has no generations, such as an overlay")

    restored = Life(path)

    assert "is a copy" in restored.warnings[0]
    assert restored.open().sequences.used > given + (1 << 39)


def test_copy_of_copy_is_one_too(tmp_path):
    paths = [tmp_path / name for name in ("a", "b", "c")]
    paths[0].mkdir()
    floors = [Life(paths[0]).open(FLOOR).sequences.used]
    for before, path in pairwise(paths):
        shutil.copytree(before, path)
        floors.append(Life(path).open().sequences.used)

    assert len(set(floors)) == 3


def test_data_path_that_was_moved_is_no_copy(tmp_path):
    (tmp_path / "here").mkdir()
    Life(tmp_path / "here").open(FLOOR)
    (tmp_path / "here").rename(tmp_path / "there")

    assert Life(tmp_path / "there").warnings == []


def test_reservation_works_on_full_disk(tmp_path):
    disk = FaultyDisk()
    life = Life(tmp_path, disk).open(FLOOR)
    for call in ("append", "allocate", "replace", "create"):
        disk.faults[call] = errno.ENOSPC

    life.reservation.extend(FLOOR + STRIDE)

    assert life.sequences.reserved == FLOOR + 2 * STRIDE
    assert life.reservation.path.stat().st_size == 2 * SLOT
