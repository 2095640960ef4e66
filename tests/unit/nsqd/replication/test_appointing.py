import errno
from pathlib import Path

import pytest

from nsqd.log.disk import Disk
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.choosing import Candidate
from nsqd.replication.frames import Fellow
from tests.support.simulated_disk import SimulatedDisk

ME = bytes(16)


@pytest.fixture
def warned():
    return []


@pytest.fixture
def opened(tmp_path, warned):
    def open_it(identity=ME):
        found = AppointmentsFile(Disk(), tmp_path, identity, warned.append)
        found.load()
        return found

    return open_it


def test_what_is_noted_is_found_at_the_next_start(opened):
    file = opened()
    old = file.appointments.appoint(Candidate("a:4150", "ab"))
    new = file.again(old, 7)

    found = opened().appointments

    assert (new.number, found) == (8, file.appointments)


def test_keepers_of_former_days_are_among_those_that_may_have_copies(opened):
    file = opened()
    old = file.appointments.appoint(Candidate("old:4150"))
    file.appointments.appoint(Candidate("new:4150"))
    file.appointments.dismiss(old)

    assert file.fellows() == (Fellow(2, "new:4150"), Fellow(1, "old:4150"))


def test_a_copied_data_path_has_appointed_nobody(opened, warned):
    file = opened()
    file.again(file.appointments.appoint(Candidate("a:4150")), 0)

    assert opened(bytes(range(16))).appointments.current == []
    assert warned == []


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"identity":"00000000000000000000000000000000"}', b"[]", b"\xff"]
)
def test_a_damaged_file_is_warned_of(opened, tmp_path, warned, content):
    (tmp_path / "appointments.json").write_bytes(content)

    assert opened().appointments.last == 0
    assert len(warned) == 1


def test_what_cannot_be_noted_has_not_changed_however_often_it_is_tried():
    disk = SimulatedDisk(Path("/data"))
    file = AppointmentsFile(disk, Path("/data"), ME, print)
    with file.change() as known:
        old = known.appoint(Candidate("a:4150", "ab"))
    disk.fail(errno.ENOSPC, "rename", "*appointments.json*", times=3)

    for _ in range(3):
        with pytest.raises(OSError, match=r"\[Errno 28\]"):
            file.again(old, 7)
        assert (known.last, known.current, known.former) == (1, [old], [])

    new = file.again(old, 7)
    assert (known.current, known.former) == ([new], [old])


def test_what_did_not_change_is_not_noted_again():
    disk = SimulatedDisk(Path("/data"))
    file = AppointmentsFile(disk, Path("/data"), ME, print)

    with file.change():
        pass

    assert disk.calls == []
