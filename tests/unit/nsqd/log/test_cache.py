import pytest

from nsqd.log.cache import Cache, Stretch
from nsqd.log.disk import Disk
from nsqd.log.frames import parse_block
from nsqd.log.gaps import Gap, Why
from nsqd.log.layout import FileHeader
from nsqd.log.segment import Segment
from nsqd.log.starts import Starts
from tests.support.descriptors import open_below
from tests.support.disks import FaultyDisk
from tests.support.stores import Shop

FIRST = 1000


@pytest.fixture
def segment_of(tmp_path):
    def make(number):
        segment = Segment(tmp_path, number, FileHeader(FIRST, FIRST, 1, 1))
        segment.path.write_bytes(b"%08d" % number * 100)
        return segment

    return make


def starts():
    found = Starts(FIRST, 0)
    found.add(FIRST, 500)
    return found


def stretch(size, end=500):
    return Stretch(
        [parse_block(FIRST, b"\0\0\0\x1e" + bytes(30))] + [Gap(FIRST + 1, FIRST + 9, Why.DAMAGED)] * size, end
    )


def test_cached_page_has_the_message_at_a_sequence_and_nothing_beyond_its_end():
    block, gap = parse_block(FIRST, b"\0\0\0\x1e" + bytes(30)), Gap(FIRST + 1, FIRST + 9, Why.DAMAGED)
    found = Stretch([block, gap], 500)

    assert [found.at(seq) for seq in (FIRST - 1, FIRST, FIRST + 1, FIRST + 8, FIRST + 9)] == [
        None,
        block,
        gap,
        gap,
        None,
    ]


def test_what_was_used_longest_ago_makes_room(segment_of):
    segment = segment_of(1)
    cache = Cache(Disk(), stretches_bytes=3 * stretch(0).weight)
    for offset in (0, 1, 2):
        cache.keep_stretch(segment, offset, stretch(0))
    cache.stretch(segment, 0, 500)

    cache.keep_stretch(segment, 3, stretch(0))

    assert [cache.stretch(segment, offset, 500) is not None for offset in range(4)] == [
        True,
        False,
        True,
        True,
    ]
    assert cache.size == 3 * stretch(0).weight


def test_the_budget_is_one_for_all_segments_and_a_thing_that_is_larger_is_kept_alone(segment_of):
    cache = Cache(Disk(), stretches_bytes=1000)
    cache.keep_stretch(segment_of(1), 0, stretch(0))
    cache.keep_stretch(segment_of(2), 0, stretch(100))

    assert cache.size == stretch(100).weight


def test_of_a_segment_that_is_gone_nothing_is_kept(segment_of, tmp_path):
    cache, segment, other = Cache(Disk()), segment_of(1), segment_of(2)
    before = len(open_below(tmp_path))
    for one in (segment, other):
        cache.keep_stretch(one, 0, stretch(0))
        cache.keep_starts(one, 0, starts())
        cache.read(one, 8, 0)

    cache.forget(segment)

    assert cache.stretch(segment, 0, 500) is None
    assert cache.starts(segment, 0, 500) is None
    assert cache.stretch(other, 0, 500) is not None
    assert len(open_below(tmp_path)) == before + 1
    cache.forget(other)
    assert (cache.size, len(open_below(tmp_path))) == (0, before)


def test_what_was_read_of_a_page_that_has_grown_since_does_not_count(segment_of):
    cache, segment = Cache(Disk()), segment_of(1)
    cache.keep_stretch(segment, 0, stretch(0, end=500))
    cache.keep_starts(segment, 0, starts())

    assert cache.stretch(segment, 0, 600) is None
    assert cache.starts(segment, 0, 600) is None


def test_few_files_are_kept_open(segment_of, tmp_path):
    cache = Cache(Disk())
    before = len(open_below(tmp_path))
    segments = [segment_of(number) for number in range(1, 41)]
    for segment in segments:
        assert cache.read(segment, 8, 8) == b"%08d" % segment.number

    assert len(open_below(tmp_path)) - before == 16
    for segment in segments:
        cache.forget(segment)
    assert len(open_below(tmp_path)) == before


def test_a_file_that_cannot_be_read_is_opened_again(segment_of):
    disk = FaultyDisk()
    cache, segment = Cache(disk), segment_of(1)
    cache.read(segment, 8, 0)
    disk.faults["read"] = 5
    with pytest.raises(OSError, match="error"):
        cache.read(segment, 8, 0)
    disk.faults.clear()
    disk.calls.clear()

    assert cache.read(segment, 8, 0) == b"00000001"
    assert disk.calls == ["open_read", "read"]
    cache.forget(segment)


class UnclosingDisk(FaultyDisk):
    """Closes a file, and then reports that this failed."""

    def close(self, fd):
        super().close(fd)
        raise OSError(5, "Input/output error")


def test_a_file_is_let_go_of_though_closing_it_fails(segment_of):
    disk = UnclosingDisk()
    cache, segment = Cache(disk), segment_of(1)
    cache.read(segment, 8, 0)
    cache.forget(segment)
    disk.calls.clear()

    cache.read(segment, 8, 0)

    assert disk.calls == ["open_read", "read"]
    cache.forget(segment)


def test_a_topic_whose_backlog_was_consumed_keeps_nothing_of_it_in_memory(tmp_path):
    shop = Shop(tmp_path)
    store = shop.new()
    for _ in range(40):
        shop.publish(*[b"x" * 200] * 200)
    shop.bodies()
    store.segments.read(FIRST, FIRST + 1)
    shop.sync()
    assert store.segments.cache.size > 1_000_000

    store.appender.seal()
    shop.sync()
    store.cleaner.drop_below(store.segments.end, store.segments.notes)

    assert store.segments.cache.size == 0


def test_a_topic_that_is_deleted_leaves_nothing_in_memory(tmp_path):
    shop = Shop(tmp_path)
    store = shop.new()
    for _ in range(40):
        shop.publish(*[b"x" * 200] * 200)
    shop.sync()
    assert store.segments.cache.size > 0

    store.appender.move_away("gone")

    assert store.segments.cache.size == 0
