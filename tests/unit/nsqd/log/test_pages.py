import random

import pytest

from nsqd.log.cache import Cache
from nsqd.log.disk import Disk
from nsqd.log.encoder import Batch, Encoder
from nsqd.log.gaps import Gap, Why
from nsqd.log.ids import MessageIds
from nsqd.log.layout import FileHeader
from nsqd.log.pages import read
from nsqd.log.segment import Segment
from nsqd.log.segment_writer import SegmentWriter
from tests.support.disks import Counting, FaultyDisk
from tests.support.stores import FIRST, deferred

COUNT = 1500
# The bytes of an append with its header.
ONE = 48 + 34 + 200


@pytest.fixture
def written(tmp_path):
    """A segment with a page and a half of deferred messages, each of which is an append."""
    encoder = Encoder(MessageIds(1), FIRST)
    disk = Disk()
    writer = SegmentWriter(disk, Segment(tmp_path, 1, FileHeader(FIRST, FIRST, 5, 1)))
    writer.append([deferred(encoder, b"%04d" % n * 50) for n in range(COUNT)], [])
    yield writer.segment
    disk.close(writer.fd)


@pytest.fixture
def disk():
    return Counting()


@pytest.fixture
def cache():
    return Cache()


def at(segment, disk, cache, seq, end=None):
    return read(disk, cache, segment, segment.page_of(seq), seq, end or seq + 1)


def body(block, seq):
    return block.frames(seq, seq + 1)[-200:]


def test_message_costs_one_small_read_with_known_starts(written, disk, cache):
    at(written, disk, cache, FIRST)
    assert disk.sizes == [written.page_size(0), ONE]
    disk.sizes.clear()

    order = list(range(FIRST, FIRST + 900))
    random.Random(1).shuffle(order)
    for seq in order[:500]:
        assert body(at(written, disk, cache, seq), seq) == b"%04d" % (seq - FIRST) * 50

    assert disk.sizes == [ONE] * 500


def test_writer_of_page_knows_starts(tmp_path, disk, cache):
    encoder = Encoder(MessageIds(1), FIRST)
    segment = Segment(tmp_path, 2, FileHeader(FIRST, FIRST, 5, 1))
    writer = SegmentWriter(disk, segment, keep=cache.starts.put)
    for n in range(COUNT):
        writer.append([deferred(encoder, b"%04d" % n * 50)], [(n + 1, b"note")] if n % 100 == 7 else [])

    order = list(range(FIRST, segment.page_end(0)))
    random.Random(1).shuffle(order)
    for seq in order:
        assert body(at(segment, disk, cache, seq), seq) == b"%04d" % (seq - FIRST) * 50
    assert max(disk.sizes) == ONE
    disk.close(writer.fd)


def test_message_is_decoded_with_wanted_followers(written, disk, cache):
    assert len(at(written, disk, cache, FIRST + 3)) == 1
    assert at(written, disk, cache, FIRST + 3, FIRST + 6).next == FIRST + 6


def test_page_that_is_in_memory_is_not_read_again_for_one_message(written, disk, cache):
    page = at(written, disk, cache, FIRST, FIRST + 1000)
    disk.sizes.clear()

    assert at(written, disk, cache, FIRST + 77) is page
    assert disk.sizes == []


def test_page_of_which_message_after_message_was_read_is_kept(written, disk, cache):
    messages = written.page_end(0) - FIRST
    for _ in range(2):
        for seq in range(FIRST, FIRST + messages):
            at(written, disk, cache, seq)

    disk.sizes.clear()
    assert len(at(written, disk, cache, FIRST + 1)) == messages
    assert disk.sizes == []


def test_long_append_is_read_alone_and_kept_like_page(tmp_path, disk):
    encoder = Encoder(MessageIds(1), FIRST)
    writer = SegmentWriter(disk, Segment(tmp_path, 1, FileHeader(FIRST, FIRST, 5, 1)))
    writer.append([encoder.batch(Batch([b"x" * 200] * 50), 1) for _ in range(40)], [])
    segment, cache = writer.segment, Cache()
    at(segment, disk, cache, FIRST + 60)
    disk.sizes.clear()

    block = at(segment, disk, cache, FIRST + 260)
    again = at(segment, disk, cache, FIRST + 270)

    assert again is block
    assert (block.first, block.next) == (FIRST + 250, FIRST + 300)
    assert disk.sizes == [pytest.approx(50 * 234 + 48)]
    disk.close(writer.fd)


def test_file_that_is_gone_is_gap_also_for_one_message(written, disk, cache):
    written.path.unlink()

    assert at(written, disk, cache, FIRST + 5) == Gap(FIRST, written.page_end(0), Why.REMOVED)


@pytest.mark.parametrize("call", ["open_read", "read"])
def test_temporary_read_error_is_error_for_one_message(written, call):
    faulty = FaultyDisk()
    cache = Cache()
    at(written, faulty, cache, FIRST)
    cache.forget(written)
    faulty.faults[call] = 24

    with pytest.raises(OSError, match="open files"):
        at(written, faulty, cache, FIRST)
    faulty.faults.clear()
    assert body(at(written, faulty, cache, FIRST), FIRST) == b"0000" * 50
