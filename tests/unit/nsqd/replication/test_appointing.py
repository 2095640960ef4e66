import pytest

from nsqd.log.disk import Disk
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.choosing import Candidate

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
