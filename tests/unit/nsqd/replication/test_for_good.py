"""The note of a keeper that a home is gone permanently."""

import pytest

from nsqd.log.disk import Disk
from nsqd.replication import for_good
from nsqd.replication.for_good import ForGood


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "carried" / "0123"


def test_without_a_note_a_home_may_come_back(folder):
    assert for_good.load(Disk(), folder) is None


def test_a_note_is_read_as_it_was_written(folder):
    note = ForGood(7, "n1:4150", 1_700_000_000_000_000_000, by_keeper=True)

    for_good.save(Disk(), folder, note)

    assert for_good.load(Disk(), folder) == note


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"appointment":"x","home":"","taken_ns":0}'])
def test_a_damaged_note_says_all_the_same_that_the_home_is_gone(folder, content):
    for_good.save(Disk(), folder, ForGood(7))
    (folder / for_good.FILE_NAME).write_bytes(content)

    assert for_good.load(Disk(), folder) == ForGood(0)


def test_the_note_goes_when_the_home_of_which_a_keeper_gave_it_away_is_back(tmp_path):
    for_good.save(Disk(), tmp_path / "copies", ForGood(7, by_keeper=True))

    for_good.remove(Disk(), tmp_path / "copies")

    assert for_good.load(Disk(), tmp_path / "copies") is None
