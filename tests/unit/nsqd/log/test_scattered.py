import random

import pytest

from nsqd.log.cache import Cache
from nsqd.log.encoder import Batch, Encoder
from nsqd.log.frames import FRAME_OVERHEAD
from nsqd.log.headers import join, split
from nsqd.log.ids import MessageIds
from nsqd.log.layout import FILE_HEADER_BYTES, FileHeader
from nsqd.log.pages import frames as read_frames
from nsqd.log.pages import read
from nsqd.log.segment import Segment
from nsqd.log.segment_writer import SegmentWriter
from tests.support.disks import Counting
from tests.support.stores import FIRST, deferred, zero

COUNT = 1500
# The bytes of a frame, and of an append with its header.
FRAME = FRAME_OVERHEAD + 200
ONE = 48 + FRAME
PLENTY = 1 << 20


@pytest.fixture
def disk():
    return Counting()


@pytest.fixture
def cache(disk):
    return Cache()


@pytest.fixture
def written(tmp_path, disk, cache):
    """A segment with a page and a half of messages, each of which is an append at a known position."""
    encoder = Encoder(MessageIds(1), FIRST)
    segment = Segment(tmp_path, 1, FileHeader(FIRST, FIRST, 5, 1))
    writer = SegmentWriter(disk, segment, keep=cache.starts.put)
    writer.append([deferred(encoder, b"%04d" % n * 50) for n in range(COUNT)], [])
    yield segment
    disk.close(writer.fd)


def read_of(disk, cache, segment, page, seqs, room, *, reads=PLENTY, extended=False):
    return read_frames(disk, cache, segment, page, seqs, room, reads, extended=extended)


def bodies(found):
    return [int(piece[FRAME_OVERHEAD : FRAME_OVERHEAD + 4]) for piece in found]


def test_messages_that_lie_apart_cost_small_read_each(written, disk, cache):
    seqs = [FIRST + n for n in range(3, 900, 30)]

    found = read_of(disk, cache, written, 0, seqs, PLENTY)

    assert bodies(found) == list(range(3, 900, 30))
    assert {len(piece) for piece in found} == {FRAME}
    assert disk.sizes == [ONE] * len(seqs)


def test_near_messages_share_read(written, disk, cache):
    found = read_of(disk, cache, written, 0, [FIRST + n for n in (5, 6, 9, 500, 502)], PLENTY)

    assert bodies(found) == [5, 6, 9, 500, 502]
    assert disk.sizes == [5 * ONE, 3 * ONE]


def test_they_end_after_so_many_reads_which_system_begins_together(written, disk, cache):
    asked = []
    disk.read_ahead = lambda _fd, size, offset: asked.append((size, offset))

    found = read_of(disk, cache, written, 0, [FIRST + n for n in range(3, 900, 30)], PLENTY, reads=5)

    assert bodies(found) == [3, 33, 63, 93, 123]
    assert disk.sizes == [ONE] * 5
    # The first read follows directly.
    assert [size for size, _ in asked] == [ONE] * 4


def test_they_end_when_there_is_no_room_for_more(written, disk, cache):
    seqs = [FIRST + n for n in range(0, 900, 2)]

    found = read_of(disk, cache, written, 0, seqs, 3 * FRAME)

    assert len(found) == 3
    assert sum(disk.sizes) <= 5 * ONE


def test_first_message_comes_although_larger_than_room(written, disk, cache):
    assert bodies(read_of(disk, cache, written, 0, [FIRST + 8, FIRST + 9], 1)) == [8]


def test_they_end_before_one_that_is_damaged(written, disk, cache):
    zero(written.path, FILE_HEADER_BYTES + 100 * ONE + 90, FILE_HEADER_BYTES + 100 * ONE + 91)

    assert bodies(read_of(disk, cache, written, 0, [FIRST + n for n in (98, 99, 100, 101)], PLENTY)) == [
        98,
        99,
    ]
    assert read_of(disk, cache, written, 0, [FIRST + 100], PLENTY) == []


def test_cached_page_is_not_read(written, disk, cache):
    read(disk, cache, written, 0, FIRST, FIRST + 1000)
    disk.sizes.clear()

    assert bodies(read_of(disk, cache, written, 0, [FIRST + 4, FIRST + 400], PLENTY)) == [4, 400]
    assert disk.sizes == []


def test_page_of_which_all_was_read_several_times_is_kept(written, disk, cache):
    messages = written.page_end(0) - FIRST
    order = list(range(messages))
    random.Random(1).shuffle(order)
    for _ in range(3):
        for at in range(0, messages, 50):
            read_of(disk, cache, written, 0, sorted(FIRST + n for n in order[at : at + 50]), PLENTY)
    disk.sizes.clear()

    assert bodies(read_of(disk, cache, written, 0, [FIRST + 7, FIRST + 700], PLENTY)) == [7, 700]
    assert disk.sizes == []


@pytest.mark.parametrize(
    ("size", "numbers", "reads"),
    [(5, [11, 12, 14, 300], 2), (COUNT, [0, 9, 700], None)],
    ids=["short", "page"],
)
def test_appends_of_several_messages_are_read_once(tmp_path, disk, cache, size, numbers, reads):
    encoder = Encoder(MessageIds(1), FIRST)
    segment = Segment(tmp_path, 1, FileHeader(FIRST, FIRST, 5, 1))
    writer = SegmentWriter(disk, segment, keep=cache.starts.put)
    for n in range(0, 2 * COUNT, size):
        writer.append([encoder.batch(Batch([b"%04d" % m * 50 for m in range(n, n + size)]), 1)], [])

    found = read_of(disk, cache, segment, 0, [FIRST + n for n in numbers], PLENTY)

    assert bodies(found) == numbers
    assert reads is None or disk.sizes == [48 + size * FRAME] * reads
    disk.close(writer.fd)


def test_scattered_frames_are_of_subscriber_kind(tmp_path, disk, cache):
    encoder = Encoder(MessageIds(1), FIRST)
    segment = Segment(tmp_path, 1, FileHeader(FIRST, FIRST, 5, 1))
    writer = SegmentWriter(disk, segment, keep=cache.starts.put)
    for n in range(COUNT):
        if n % 3:
            writer.append([encoder.batch(Batch([b"%04d" % n * 50]), 1)], [])
        else:
            with_headers = Batch([join({"n": "1"}, b"%04d" % n * 50)], has_headers=True)
            writer.append([encoder.batch(with_headers, 1)], [])
    seqs = [FIRST + n for n in (3, 4, 5, 300, 301)]

    plain = read_of(disk, cache, segment, 0, seqs, PLENTY)
    extended = read_of(disk, cache, segment, 0, seqs, PLENTY, extended=True)

    assert bodies(plain) == [3, 4, 5, 300, 301]
    assert [split(piece[FRAME_OVERHEAD:])[0] for piece in extended] == [{"n": "1"}, {}, {}, {"n": "1"}, {}]
    assert [int(split(piece[FRAME_OVERHEAD:])[1][:4]) for piece in extended] == [3, 4, 5, 300, 301]
    disk.close(writer.fd)
