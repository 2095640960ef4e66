import pytest

from nsqd.log.cache import ENTRY_BYTES, Recent
from nsqd.log.layout import FileHeader
from nsqd.log.segment import Segment
from nsqd.log.starts import Starts
from tests.support.stores import Shop

FIRST = 1000


@pytest.fixture
def segment_of(tmp_path):
    return lambda number: Segment(tmp_path, number, FileHeader(FIRST, FIRST, 1, 1))


def starts(appends=1):
    found = Starts(FIRST, 0)
    for number in range(appends):
        found.add(FIRST + number, 500)
    return found


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


def test_deleted_topic_leaves_nothing_in_cache(tmp_path):
    store = filled(tmp_path).store
    store.appender.move_away("gone")

    assert store.segments.cache.size == 0
