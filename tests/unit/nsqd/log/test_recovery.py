"""The content of one segment after a stop, a crash or a power cut."""

import errno

import pytest

from nsqd.log import segment_index
from nsqd.log.disk import Disk
from nsqd.log.encoder import Batch, Encoder
from nsqd.log.gaps import Gap, Why
from nsqd.log.ids import MessageIds
from nsqd.log.layout import (
    APPEND_HEADER_BYTES,
    FILE_HEADER_BYTES,
    FileHeader,
    NewerVersion,
    append_header,
)
from nsqd.log.pages import read_page
from nsqd.log.recovery import open_segment, recover
from nsqd.log.segment import Segment
from nsqd.log.segment_files import NO_LIMIT
from nsqd.log.segment_writer import SegmentWriter
from nsqd.log.tail_records import CheckpointPosition, RecoveredMessages
from tests.support.disks import FaultyDisk
from tests.support.stores import FIRST, deferred, flip, zero

# Long enough that a sector of zeros can lie in the middle of an append.
BODY = b"x" * 3000
DURABLE = CheckpointPosition(FIRST + 5, 0, FIRST + 5, FIRST + 5)


class Slip:
    """One segment of five appends of one message, and where each ends."""

    def __init__(self, folder):
        self.encoder = Encoder(MessageIds(1), FIRST)
        self.segment = Segment(folder, 1, FileHeader(FIRST, FIRST, 77, 1))
        self.writer = SegmentWriter(Disk(), self.segment)
        self.ends = [FILE_HEADER_BYTES]
        for _ in range(5):
            self.append(self.encoder.batch(Batch([BODY]), 1))

    @property
    def path(self):
        return self.segment.path

    def append(self, *blocks, notes=()):
        self.writer.append(list(blocks), list(notes))
        self.ends.append(self.segment.size)

    def recover(self, mark=DURABLE, limit=NO_LIMIT, disk=None):
        empty = open_segment(Disk(), self.path, 1, 0)
        found = recover(disk or Disk(), empty, mark, limit)
        self.found = [
            one if isinstance(one, Gap) else (one.first, one.next)
            for page in range(found.segment.pages)
            for one in read_page(Disk(), found.segment, page)
        ]
        return found


@pytest.fixture
def slip(tmp_path):
    slip = Slip(tmp_path)
    yield slip
    Disk().close(slip.writer.fd)


def happened(found):
    return [
        (one.first, one.next, one.due_ns) if isinstance(one, RecoveredMessages) else (one.number, one.content)
        for one in found.tail_records
    ]


# --- undamaged


def test_undamaged_segment_has_extent_it_was_written_with(slip):
    found = slip.recover()

    assert (found.torn, found.damages, found.tail_records) == (0, 0, [])
    for name in ("next", "size", "messages", "page_firsts", "page_offsets", "page_times"):
        assert getattr(found.segment, name) == getattr(slip.segment, name), name


def test_records_after_checkpoint_are_reported_in_order(slip):
    slip.append(deferred(slip.encoder, b"later"), notes=[(1, b"one"), (2, b"two")])
    slip.append(slip.encoder.batch(Batch([b"y"] * 2), 1), slip.encoder.batch(Batch([b"z"]), 1))
    slip.append(notes=[(3, b"three")])

    found = slip.recover(CheckpointPosition(FIRST + 4, 1, FIRST, FIRST + 4))

    assert happened(found) == [
        (FIRST + 4, FIRST + 5, 0),
        (2, b"two"),
        (FIRST + 5, FIRST + 6, 99),
        (FIRST + 6, FIRST + 9, 0),
        (3, b"three"),
    ]


def test_tail_record_begins_at_checkpoint_and_ends_with_its_append(slip):
    slip.append(deferred(slip.encoder, *[b"later"] * 3), deferred(slip.encoder, b"later", b"too"))
    slip.append(slip.encoder.batch(Batch([b"y"] * 10), 1))

    found = happened(slip.recover(CheckpointPosition(FIRST + 6, 0, FIRST, FIRST + 6)))
    assert found == [
        (FIRST + 6, FIRST + 8, 99),
        (FIRST + 8, FIRST + 10, 99),
        (FIRST + 10, FIRST + 20, 0),
    ]


def test_messages_of_one_run_are_told_as_one_but_not_across_unused_numbers(slip):
    slip.encoder.skip_to(FIRST + 20)
    slip.append(slip.encoder.batch(Batch([b"y"]), 1))

    assert happened(slip.recover(CheckpointPosition())) == [
        (FIRST, FIRST + 5, 0),
        (FIRST + 20, FIRST + 21, 0),
    ]


def test_index_spares_walk_when_checkpoint_covers_segment(slip):
    segment_index.write(Disk(), slip.segment)
    disk = FaultyDisk()

    found = slip.recover(disk=disk)

    assert found.segment.next == FIRST + 5
    assert disk.calls.count("read") == 1  # the index is read


@pytest.mark.parametrize(
    "mark",
    [
        CheckpointPosition(FIRST + 4, 0, FIRST + 4, FIRST + 4),
        CheckpointPosition(FIRST + 5, 0, FIRST + 4, FIRST + 5),
        CheckpointPosition(),
    ],
    ids=["not covered", "not durable", "no checkpoint"],
)
def test_index_does_not_spare_walk_otherwise(slip, mark):
    segment_index.write(Disk(), slip.segment)

    found = slip.recover(mark)

    assert found.segment.next == FIRST + 5
    assert happened(found) == ([(mark.next or FIRST, FIRST + 5, 0)] if mark.next < FIRST + 5 else [])


def test_index_does_not_hide_notes_after_checkpoint(slip):
    slip.append(notes=[(1, b"note")])
    segment_index.write(Disk(), slip.segment)

    assert happened(slip.recover()) == [(1, b"note")]


# --- durable messages


def test_truncated_durable_file_retains_its_readable_messages(slip):
    Disk().truncate(slip.path, slip.ends[3] + 100)

    found = slip.recover()

    assert (found.torn, found.damages, found.segment.next) == (0, 1, FIRST + 4)
    assert slip.found == [(FIRST, FIRST + 3), Gap(FIRST + 3, FIRST + 4, Why.DAMAGED)]
    assert found.segment.size == slip.ends[3] + 100


def test_messages_lost_between_checkpoint_and_mark_are_counted(slip):
    zero(slip.path, slip.ends[1], slip.ends[3])

    found = slip.recover(CheckpointPosition(FIRST, 0, FIRST + 5, FIRST))

    assert happened(found) == [(FIRST, FIRST + 5, 0)]


# --- the disk after a power cut


HOLE = (700, 2000)
ALL = (0, 3082)


@pytest.mark.parametrize(
    ("synced", "zeros", "flips", "end", "damaged"),
    [
        pytest.param(0, {4: HOLE}, (), 4, [], id="last append"),
        pytest.param(0, {1: HOLE, 3: ALL, 4: ALL}, (), 3, [1], id="a hole and the end"),
        # The tail of the fourth append is lost, but so little of it that a whole message could end so.
        pytest.param(0, {4: ALL}, (4,), 3, [], id="damage right before a torn end"),
        pytest.param(0, {}, (2,), 5, [1], id="a flipped bit before whole appends"),
        pytest.param(3, {1: ALL, 4: ALL}, (), 4, [1], id="a durable hole"),
    ],
)
def test_durable_end_is_not_cut_off(slip, synced, zeros, flips, end, damaged):
    for place, (start, stop) in zeros.items():
        zero(slip.path, slip.ends[place] + start, min(slip.ends[place] + stop, slip.ends[place + 1]))
    for place in flips:
        flip(slip.path, 8 * (slip.ends[place] - 1))
    mark = CheckpointPosition(FIRST, 0, FIRST + synced, FIRST + synced) if synced else CheckpointPosition()

    found = slip.recover(mark)

    assert (found.segment.next, found.segment.size) == (FIRST + end, slip.ends[end])
    assert (found.torn, found.damages) == (slip.ends[5] - slip.ends[end], len(damaged))
    assert [(one.start, one.why) for one in slip.found if isinstance(one, Gap)] == [
        (FIRST + place, Why.DAMAGED) for place in damaged
    ]
    # Damaged messages are pending like the others, so they count as lost.
    assert happened(found) == [(FIRST, FIRST + end, 0)]
    assert found.segment.messages == end - sum(zeros.get(place) == ALL for place in damaged)


def test_message_full_of_zeros_is_no_hole(slip):
    slip.append(slip.encoder.batch(Batch([bytes(5000)]), 1))

    found = slip.recover(CheckpointPosition())

    assert (found.torn, found.damages, found.segment.next) == (0, 0, FIRST + 6)


def test_message_that_contains_a_whole_segment_is_not_walked_into(slip):
    slip.append(slip.encoder.batch(Batch([slip.path.read_bytes()]), 1))
    start = slip.ends[-2]
    zero(slip.path, start, start + APPEND_HEADER_BYTES)

    assert slip.recover(CheckpointPosition()).segment.next == FIRST + 5


def test_torn_note_is_not_told(slip):
    slip.append(notes=[(1, b"whole")])
    slip.append(notes=[(2, b"n" * 2000)])
    zero(slip.path, slip.ends[-1] - 1500, slip.ends[-1])

    found = slip.recover()

    assert happened(found) == [(1, b"whole")]
    assert (bool(found.torn), found.segment.size, found.segment.last_note) == (True, slip.ends[-2], 1)


# --- refused appends


def test_refused_append_behind_damage_is_not_lost(slip):
    zero(slip.path, slip.ends[1], slip.ends[1] + APPEND_HEADER_BYTES)
    zero(slip.path, slip.ends[2], slip.ends[2] + APPEND_HEADER_BYTES)

    found = slip.recover(CheckpointPosition(synced=FIRST + 5), limit=FIRST + 2)

    assert happened(found) == [(FIRST, FIRST + 2, 0)]


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("indexed", [False, True])
def test_refused_append_is_neither_stored_nor_torn_end(slip, cut, indexed):
    if indexed:
        segment_index.write(Disk(), slip.segment)
    if cut:
        Disk().truncate(slip.path, slip.ends[3] + 10)

    found = slip.recover(CheckpointPosition(), limit=FIRST + 3)

    assert (found.torn, found.damages, found.segment.next) == (0, 0, FIRST + 3)
    assert happened(found) == [(FIRST, FIRST + 3, 0)]


def test_compacted_segment_is_never_torn(tmp_path):
    encoder = Encoder(MessageIds(1), FIRST)
    segment = Segment(tmp_path, 1, FileHeader(FIRST, FIRST, 77, 1, ends=FIRST + 50), generation=1)
    writer = SegmentWriter(Disk(), segment)
    writer.append([encoder.batch(Batch([BODY]), 1), encoder.batch(Batch([BODY]), 1)], [])
    Disk().close(writer.fd)
    zero(segment.path, segment.size - 2000, segment.size)

    found = recover(Disk(), Segment(tmp_path, 1, segment.header, 1), CheckpointPosition(), NO_LIMIT)

    assert (found.torn, found.segment.next) == (0, FIRST + 50)


# --- the file


@pytest.mark.parametrize("content", [b"", bytes(10), bytes(5000), b"NSQLOG"])
def test_file_in_which_nothing_was_ever_stored_is_none(tmp_path, content):
    (tmp_path / "00000001.log").write_bytes(content)

    assert open_segment(Disk(), tmp_path / "00000001.log", 1, 0) is None


def test_append_of_newer_version_stops_start_instead_of_being_lost(slip):
    data = slip.encoder.batch(Batch([b"z"]), 1).data
    with slip.path.open("ab") as file:
        file.write(append_header(77, FIRST + 5, 1, 0, data, 0x0004) + data)

    with pytest.raises(NewerVersion):
        slip.recover(CheckpointPosition())


@pytest.mark.parametrize("call", ["open_read", "read", "size"])
def test_disk_that_cannot_be_read_stops_start_instead_of_losing_anything(slip, call):
    with pytest.raises(OSError, match="Input/output error"):
        slip.recover(CheckpointPosition(), disk=FaultyDisk(**{call: errno.EIO}))


def test_disk_that_reads_less_than_it_has_stops_start(slip):
    class Stingy(Disk):
        def read(self, fd, size, offset):
            return super().read(fd, size - 1, offset)

    with pytest.raises(OSError, match="short read"):
        slip.recover(CheckpointPosition(), disk=Stingy())
