import errno
from itertools import pairwise

import pytest

from nsqd.log.disk import Disk
from nsqd.log.encoder import Batch, Encoder
from nsqd.log.frames import Block
from nsqd.log.gaps import Gap, Why
from nsqd.log.ids import MessageIds
from nsqd.log.layout import APPEND_HEADER_BYTES, FILE_HEADER_BYTES, FileHeader
from nsqd.log.pages import appends_in, read_page
from nsqd.log.segment import FOLLOWING, PAGE_BYTES, Segment, SegmentState
from nsqd.log.segment_writer import SegmentWriter, new_salt
from tests.support.disks import FaultyDisk
from tests.support.stores import FIRST, deferred, flip, zero


@pytest.fixture
def encoder():
    return Encoder(MessageIds(1), FIRST)


@pytest.fixture
def writer(tmp_path):
    disk = Disk()
    writer = SegmentWriter(disk, Segment(tmp_path, 1, FileHeader(FIRST, FIRST, new_salt(7), 1)))
    yield writer
    disk.close(writer.fd)


def page(segment, number=0, disk=None):
    """The content of a page: (first, next) of each block, gaps as they are."""
    found = read_page(disk or Disk(), segment, number)
    return [(one.first, one.next) if isinstance(one, Block) else one for one in found]


def test_written_messages_are_read_back_together(writer, encoder):
    blocks = [
        encoder.batch(Batch([b"a", b"bb"]), 1),
        deferred(encoder, b"later"),
        encoder.batch(Batch([b"c"]), 1),
    ]
    writer.append(blocks, [])

    (found,) = read_page(Disk(), writer.segment, 0)

    assert (found.first, found.next) == (FIRST, FIRST + 4)
    assert found.data == b"".join(block.data for block in blocks)


def test_notes_are_no_messages_and_are_passed_over_by_readers(writer, encoder):
    writer.append([encoder.batch(Batch([b"a"]), 1)], [(1, b"before")])
    writer.append([], [(2, b"between"), (3, b"and another")])
    writer.append([encoder.batch(Batch([b"b"]), 1)], [])

    assert page(writer.segment) == [(FIRST, FIRST + 2)]
    assert (writer.segment.messages, writer.segment.last_note) == (2, 3)


def test_appends_say_which_notes_and_deferred_messages_there_are(writer, encoder):
    writer.append([deferred(encoder, b"later")], [(7, b"note")])

    found = list(appends_in(Disk(), writer.segment, 0))

    assert [(append.is_note, append.due_ns) for append, _ in found] == [(True, 7), (False, 99)]
    assert found[0][1] == b"note"


def test_flipped_bit_of_appends_header_costs_nothing(writer, encoder):
    writer.append([encoder.batch(Batch([b"message %d" % n] * 2), 1) for n in range(3)], [])
    content = writer.segment.path.read_bytes()
    for bit in range(0, APPEND_HEADER_BYTES * 8, 5):
        flip(writer.segment.path, FILE_HEADER_BYTES * 8 + bit)
        assert page(writer.segment) == [(FIRST, FIRST + 6)]
        writer.segment.path.write_bytes(content)


def test_header_that_cannot_be_mended_costs_what_lies_before_the_next_one(writer, encoder):
    blocks = [encoder.batch(Batch([b"message %d" % n] * 2), 1) for n in range(3)]
    writer.append(blocks, [])
    second = FILE_HEADER_BYTES + APPEND_HEADER_BYTES + len(blocks[0].data)
    zero(writer.segment.path, second, second + APPEND_HEADER_BYTES)

    assert page(writer.segment) == [
        (FIRST, FIRST + 2),
        Gap(FIRST + 2, FIRST + 4, Why.DAMAGED),
        (FIRST + 4, FIRST + 6),
    ]


@pytest.mark.parametrize("call", ["open_read", "read"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.EACCES])
def test_read_that_fails_is_no_gap(writer, encoder, call, number):
    writer.append([encoder.batch(Batch([b"a"] * 3), 1)], [])

    with pytest.raises(OSError, match=r".") as caught:
        page(writer.segment, disk=FaultyDisk(**{call: number}))

    assert caught.value.errno == number


def test_disk_that_gives_less_than_file_has_is_failure_and_no_gap(writer, encoder):
    class Stingy(Disk):
        def read(self, fd, size, offset):
            return super().read(fd, size // 2, offset)

    writer.append([encoder.batch(Batch([b"a"] * 3), 1)], [])

    with pytest.raises(OSError, match="short read"):
        page(writer.segment, disk=Stingy())


def test_pages_know_when_their_first_message_was_published(writer, encoder):
    for n in range(14):
        writer.append([encoder.batch(Batch([b"x" * 40_000]), 100 + n)], [])

    assert writer.segment.page_times == [100, 107]


def test_page_that_begins_with_note_has_time_of_its_first_message(writer, encoder):
    writer.append([encoder.batch(Batch([b"x" * PAGE_BYTES]), 100)], [])
    writer.append([], [(1, b"note")])
    assert writer.segment.page_times == [100, 0]

    writer.append([encoder.batch(Batch([b"x"]), 200)], [(2, b"note")])
    writer.append([encoder.batch(Batch([b"x"]), 300)], [])

    assert writer.segment.page_times == [100, 200]


def test_page_with_notes_only_has_time_of_the_next_message(writer, encoder):
    writer.append([], [(1, b"n" * PAGE_BYTES)])
    writer.append([], [(2, b"n" * PAGE_BYTES)])
    assert writer.segment.page_times == [0, 0]

    writer.append([encoder.batch(Batch([b"x"]), 200)], [])

    assert writer.segment.page_times == [200, 200, 200]


def test_damaged_append_is_told_from_unused_numbers_beside_it(writer, encoder):
    writer.append([encoder.batch(Batch([b"a"]), 1)], [])
    encoder.skip_to(FIRST + 5)
    writer.append([encoder.batch(Batch([b"b"]), 1)], [])
    flip(writer.segment.path, 8 * (writer.segment.size - 1))

    assert page(writer.segment) == [
        (FIRST, FIRST + 1),
        Gap(FIRST + 1, FIRST + 5, Why.UNUSED),
        Gap(FIRST + 5, FIRST + 6, Why.DAMAGED),
    ]


def test_missing_messages_of_compacted_file_are_finished(tmp_path, encoder):
    header = FileHeader(FIRST, FIRST, new_salt(7), 1, ends=FIRST + 9)
    segment = Segment(tmp_path, 1, header, generation=2)
    writer = SegmentWriter(Disk(), segment)
    encoder.skip_to(FIRST + 3)
    writer.append([encoder.batch(Batch([b"b"]), 1)], [])
    segment.next = header.ends
    Disk().close(writer.fd)

    assert segment.path.name == "00000001.2.log"
    assert page(segment) == [
        Gap(FIRST, FIRST + 3, Why.COMPACTED),
        (FIRST + 3, FIRST + 4),
        Gap(FIRST + 4, FIRST + 9, Why.COMPACTED),
    ]


@pytest.mark.parametrize("after", SegmentState)
@pytest.mark.parametrize("before", SegmentState)
def test_segment_state_follows_table(tmp_path, before, after):
    segment = Segment(tmp_path, 1, FileHeader(FIRST, FIRST, 5, 1))
    segment.next = FIRST + 3
    segment.state = before

    if after in FOLLOWING[before]:
        segment.become(after)
        assert segment.state is after
    else:
        with pytest.raises(AssertionError, match=f"cannot become {after.value}"):
            segment.become(after)
        assert segment.state is before
    # Only a successful sync makes anything durable.
    assert segment.synced == (
        FIRST + 3 if segment.state is not before and after is SegmentState.SYNCED else FIRST
    )


def test_offset_of_message_is_estimated_within_page(writer, encoder):
    bodies = [b"." * 1000] * 500
    for _ in range(4):
        writer.append([encoder.batch(Batch(bodies), 1)], [])
    segment = writer.segment
    assert segment.pages > 1

    offsets = [segment.offset_of(FIRST + n) for n in range(0, 2001, 100)]

    sizes = [after - before for before, after in pairwise(offsets)]
    assert offsets[-1] == segment.size
    assert all(100_000 <= size <= 110_000 for size in sizes)


def test_file_is_header_and_appends_and_nothing_else(writer, encoder):
    block = encoder.batch(Batch([b"a", b"bb"]), 1)
    writer.append([block], [(1, b"note")])

    size = FILE_HEADER_BYTES + 2 * APPEND_HEADER_BYTES + len(b"note") + len(block.data)
    assert writer.segment.path.stat().st_size == writer.segment.size == size
    assert writer.segment.path.read_bytes().endswith(block.data)
