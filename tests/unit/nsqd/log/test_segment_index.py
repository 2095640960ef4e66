import errno
import struct

import pytest
from xxhash import xxh3_64_intdigest

from nsqd.log import segment_index
from nsqd.log.disk import Disk
from nsqd.log.encoder import Batch, Encoder
from nsqd.log.ids import MessageIds
from nsqd.log.layout import FileHeader
from nsqd.log.segment import PAGE_BYTES, Segment
from nsqd.log.segment_writer import SegmentWriter
from tests.support.disks import FaultyDisk
from tests.support.stores import FIRST, flip

HEADER = FileHeader(FIRST, FIRST, 12345, 1)


@pytest.fixture
def segment(tmp_path):
    """A closed segment of four pages, with its index."""
    encoder = Encoder(MessageIds(1), FIRST)
    segment = Segment(tmp_path, 1, HEADER)
    writer = SegmentWriter(Disk(), segment)
    for n in range(4):
        writer.append([encoder.batch(Batch([b"x" * PAGE_BYTES]), 100 + n)], [(n + 1, b"note")])
    Disk().close(writer.fd)
    segment_index.write(Disk(), segment)
    return segment


def loaded(segment, **changes):
    """Load the index into an empty segment; returns the segment and whether that worked."""
    size = changes.pop("size", segment.size)
    empty = Segment(segment.folder, segment.number, changes.pop("header", segment.header))
    return empty, segment_index.load(Disk(), empty, size)


def test_index_gives_segment_its_whole_extent(segment):
    found, worked = loaded(segment)

    assert worked
    for name in (
        "first",
        "next",
        "size",
        "messages",
        "last_note",
        "page_firsts",
        "page_offsets",
        "page_times",
    ):
        assert getattr(found, name) == getattr(segment, name), name
    assert found.pages == 4


def test_segment_without_index_has_to_be_walked(segment):
    Disk().remove(segment.index_path)

    assert not loaded(segment)[1]


def test_index_of_another_state_of_file_is_not_used(segment):
    assert not loaded(segment, size=segment.size - 1)[1]
    assert not loaded(segment, size=segment.size + 1)[1]


def test_index_of_another_file_is_not_used(segment):
    assert not loaded(segment, header=FileHeader(FIRST, FIRST, 54321, 1))[1]


def test_flipped_bit_anywhere_makes_it_useless_and_segment_stays_empty(segment):
    size = segment.index_path.stat().st_size
    for bit in range(0, size * 8, 7):
        flip(segment.index_path, bit)
        found, worked = loaded(segment)
        assert not worked
        assert (found.pages, found.next) == (0, FIRST)
        flip(segment.index_path, bit)
    assert loaded(segment)[1]


def test_index_that_was_cut_short_is_not_used(segment):
    content = segment.index_path.read_bytes()
    for size in range(len(content)):
        segment.index_path.write_bytes(content[:size])
        assert not loaded(segment)[1]


@pytest.mark.parametrize(("at", "value"), [(8, 3), (10, 0x0001), (12, 3), (0, 0x4E)])
def test_index_of_newer_version_is_missed_shortcut_and_no_more(segment, at, value):
    content = bytearray(segment.index_path.read_bytes()[:-8])
    struct.pack_into("<H", content, at, value)
    segment.index_path.write_bytes(content + struct.pack("<Q", xxh3_64_intdigest(bytes(content))))

    assert not loaded(segment)[1]


def test_segment_with_nothing_in_it_can_have_index(tmp_path):
    empty = Segment(tmp_path, 1, HEADER)
    empty.next = FIRST + 10
    segment_index.write(Disk(), empty)

    found, worked = loaded(empty)

    assert worked
    assert (found.pages, found.next) == (0, FIRST + 10)


def test_unreadable_index_is_failure_and_not_absent(segment):
    with pytest.raises(OSError, match="Input/output error"):
        segment_index.load(FaultyDisk(read_file=errno.EIO), Segment(segment.folder, 1, HEADER), segment.size)


def test_index_of_compacted_segment_says_which_messages_it_has(segment):
    kept = [(FIRST, FIRST + 1), (FIRST + 3, FIRST + 4)]
    assert segment_index.stored_ranges(Disk(), segment) is None

    segment_index.write(Disk(), segment, kept)

    assert segment_index.stored_ranges(Disk(), segment) == kept
    assert loaded(segment)[1]


def later_version(content):
    content = bytearray(content[:-8]) + bytes(16)
    struct.pack_into("<H", content, 10, 0x0300)
    return bytes(content)


@pytest.mark.parametrize("change", [later_version, lambda content: content[:-16]], ids=["later", "cut"])
def test_index_of_another_shape_is_not_used(segment, change):
    segment_index.write(Disk(), segment, [(FIRST, FIRST + 1)])
    content = change(segment.index_path.read_bytes())
    segment.index_path.write_bytes(content + struct.pack("<Q", xxh3_64_intdigest(content)))

    assert segment_index.stored_ranges(Disk(), segment) is None
    assert not loaded(segment)[1]
