"""The note of a home that its log belongs to another node."""

import dataclasses

import pytest

from nsqd.log.disk import Disk
from nsqd.replication import appointing, for_good, handed_over
from nsqd.replication.handed_over import DamagedHandOver, HandedOver

NOTE = HandedOver("00ff", "n2:4150", "ff00", 3)


def test_a_note_is_read_as_it_was_written(tmp_path):
    assert handed_over.load(Disk(), tmp_path) is None
    handed_over.save(Disk(), tmp_path, NOTE)
    assert handed_over.load(Disk(), tmp_path) == NOTE

    told = dataclasses.replace(NOTE, confirmed=True)
    handed_over.save(Disk(), tmp_path, told)
    assert handed_over.load(Disk(), tmp_path) == told


@pytest.mark.parametrize("content", [b"", b"{}", b'{"identity":1}', b"[1]"])
def test_a_damaged_note_is_not_taken_for_none(tmp_path, content):
    (tmp_path / handed_over.FILE_NAME).write_bytes(content)

    with pytest.raises(DamagedHandOver, match="is damaged, so it is not known whose the messages are"):
        handed_over.load(Disk(), tmp_path)


def test_topics_that_are_put_aside_are_found_by_no_start(tmp_path):
    for name in ("a.topic", "b.topic", "b.topic.0.deleted", "carried"):
        (tmp_path / name).mkdir()
    said = []

    assert handed_over.put_aside(Disk(), tmp_path, said.append) == 2

    left = sorted(one.name for one in tmp_path.iterdir())
    assert left == ["a.topic.0.deleted", "b.topic.0.deleted", "b.topic.1.deleted", "carried"]
    assert len(said) == 1
    assert handed_over.put_aside(Disk(), tmp_path, said.append) == 0
    assert len(said) == 1


def test_of_copies_that_were_passed_on_nothing_tells_any_more(tmp_path):
    handed_over.save(Disk(), tmp_path, NOTE)
    for_good.save(Disk(), tmp_path, for_good.ForGood(1))
    (tmp_path / appointing.FILE_NAME).write_bytes(b"{}")

    handed_over.forget_copies(Disk(), tmp_path)

    assert list(tmp_path.iterdir()) == []
