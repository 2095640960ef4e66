"""Appending to one file, and syncing it."""

import errno

import pytest

from nsqd.log.disk import Disk
from nsqd.log.encoder import Batch, Encoder
from nsqd.log.ids import MessageIds
from nsqd.log.layout import APPEND_HEADER_BYTES, FILE_HEADER_BYTES, FileHeader
from nsqd.log.segment import Segment
from nsqd.log.segment_writer import SegmentWriter, new_salt
from tests.support.disks import FaultyDisk
from tests.support.stores import FIRST


@pytest.fixture
def encoder():
    return Encoder(MessageIds(1), FIRST)


@pytest.fixture
def writer(tmp_path):
    disk = Disk()
    writer = SegmentWriter(disk, Segment(tmp_path, 1, FileHeader(FIRST, FIRST, new_salt(7), 1)))
    yield writer
    disk.close(writer.fd)


def test_file_is_header_and_appends_and_nothing_else(writer, encoder):
    block = encoder.batch(Batch([b"a", b"bb"]), 1)
    writer.append([block], [(1, b"note")])

    size = FILE_HEADER_BYTES + 2 * APPEND_HEADER_BYTES + len(b"note") + len(block.data)
    assert writer.segment.path.stat().st_size == writer.segment.size == size
    assert writer.segment.path.read_bytes().endswith(block.data)


def test_existing_file_is_not_overwritten(writer):
    with pytest.raises(FileExistsError):
        SegmentWriter(Disk(), writer.segment)


def test_append_that_fails_leaves_extent_as_it_was(tmp_path, encoder):
    disk = FaultyDisk()
    writer = SegmentWriter(disk, Segment(tmp_path, 1, FileHeader(FIRST, FIRST, 5, 1)))
    writer.append([encoder.batch(Batch([b"a"]), 1)], [(1, b"note")])
    before = repr(writer.segment)
    disk.faults["append"] = errno.ENOSPC

    with pytest.raises(OSError, match="No space"):
        writer.append([encoder.batch(Batch([b"b"]), 1)], [(2, b"note")])

    assert repr(writer.segment) == before
    assert (writer.segment.messages, writer.segment.last_note, writer.segment.pages) == (1, 1, 1)
    disk.close(writer.fd)


def test_files_of_log_have_own_salts_and_one_log_id():
    salts = {new_salt(7) for _ in range(100)}

    assert len(salts) == 100
    assert {FileHeader(FIRST, FIRST, salt, 1).log_id for salt in salts} == {7}
