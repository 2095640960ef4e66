import pytest

from nsqd.log.cache import ENTRY_BYTES, Cache, CachedRange, Recent
from nsqd.log.frames import parse_block
from nsqd.log.gaps import Gap, Why
from nsqd.log.layout import FileHeader
from nsqd.log.segment import Segment
from nsqd.log.starts import Starts
from tests.support.stores import Shop

FIRST = 1000
BLOCK = parse_block(FIRST, b"\0\0\0\x1e" + bytes(30))
GAP = Gap(FIRST + 1, FIRST + 9, Why.DAMAGED)


@pytest.fixture
def segment_of(tmp_path):
    return lambda number: Segment(tmp_path, number, FileHeader(FIRST, FIRST, 1, 1))


def starts(appends=1):
    found = Starts(FIRST, 0)
    for number in range(appends):
        found.add(FIRST + number, 500)
    return found


def test_page_returns_messages_at_sequence():
    found = CachedRange([BLOCK, GAP], 500)

    assert [found.at(FIRST + n) for n in (-1, 0, 1, 8, 9)] == [None, BLOCK, GAP, GAP, None]
    assert found.size == 2 * ENTRY_BYTES + BLOCK.weight


def test_least_recently_used_entry_makes_room(segment_of):
    segment = segment_of(1)
    recent = Recent(3 * (ENTRY_BYTES + starts().size))
    for offset in (0, 1, 2):
        recent.put(segment, offset, starts())
    recent.get(segment, 0, 500)

    recent.put(segment, 3, starts())

    assert [recent.get(segment, offset, 500) is not None for offset in range(4)] == [True, False, True, True]
    assert recent.size == 3 * (ENTRY_BYTES + starts().size)


def test_entry_larger_than_budget_of_all_segments_is_kept_alone(segment_of):
    recent = Recent(1000)
    recent.put(segment_of(1), 0, starts())
    recent.put(segment_of(2), 0, starts(1000))

    assert recent.size == ENTRY_BYTES + starts(1000).size


def test_entries_of_forgotten_segment_are_discarded(segment_of):
    cache, segment, other = Cache(), segment_of(1), segment_of(2)
    for one in (segment, other):
        cache.stretches.put(one, 0, CachedRange([BLOCK, GAP], 500))
        cache.starts.put(one, 0, starts())

    cache.forget(segment)

    assert cache.stretches.get(segment, 0, 500) is cache.starts.get(segment, 0, 500) is None
    assert cache.stretches.get(other, 0, 500) is not None
    cache.forget(other)
    assert cache.size == 0


def test_entry_of_page_that_has_grown_is_not_used(segment_of):
    recent, segment = Recent(1000), segment_of(1)
    recent.put(segment, 0, starts())

    assert recent.get(segment, 0, 600) is None


def filled(tmp_path):
    shop = Shop(tmp_path)
    store = shop.new()
    for _ in range(40):
        shop.publish(*[b"x" * 200] * 200)
    shop.bodies()
    store.segments.read(FIRST, FIRST + 1)
    assert shop.sync() is None
    assert store.segments.cache.size > 1_000_000
    return shop


def test_consumed_backlog_leaves_nothing_in_cache(tmp_path):
    shop = filled(tmp_path)
    shop.store.appender.seal()
    shop.sync()
    shop.store.cleaner.drop_below(shop.store.segments.end, shop.store.segments.notes)

    assert shop.store.segments.cache.size == 0


def test_deleted_topic_leaves_nothing_in_cache(tmp_path):
    store = filled(tmp_path).store
    store.appender.move_away("gone")

    assert store.segments.cache.size == 0
