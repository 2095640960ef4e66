import pytest

from nsqd.log.cursor import Cursor
from nsqd.log.disk import Disk
from nsqd.log.encoder import Batch, Encoder
from nsqd.log.headers import join
from nsqd.log.ids import MessageIds
from nsqd.log.search import Contains, Matches, Search, parts_in_memory, parts_on_disk
from nsqd.log.tail import MessageLog
from tests.support.stores import FIRST, Shop

FILL = b"." * 30_000


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    shop.new(segment=1 << 20)
    yield shop
    shop.store.appender.close()


@pytest.fixture
def log(shop):
    """Sixty messages over several pages and files; every tenth contains "needle"."""
    for n in range(60):
        shop.publish(FILL + (b"needle" if n % 10 == 0 else b"hay"))
    assert len(shop.store.segments) > 1
    return shop


def search(parts, needle=b"needle", only=None, *, forward=True, limit=100):
    found = Matches(-1)
    Search(parts, Contains(needle), only or [(0, 1 << 54)], forward=forward, limit=limit).run(found)
    return found


def parts_of(shop, there=None, most=1 << 30, *, forward=True):
    return list(
        parts_on_disk(Disk(), shop.store.segments, there or [(FIRST, FIRST + 60)], most, forward=forward)
    )


def test_matches_are_found_in_order(log):
    found = search(parts_of(log))

    assert found.matches == [FIRST + n for n in range(0, 60, 10)]
    assert found.position == FIRST + 60
    assert found.scanned > 60 * len(FILL)


def test_search_back_finds_the_last_first(log):
    found = search(parts_of(log, forward=False), forward=False)

    assert found.matches == [FIRST + n for n in range(50, -1, -10)]
    assert found.position == FIRST - 1


@pytest.mark.parametrize("forward", [True, False])
def test_limited_search_resumes_at_its_position(log, forward):
    matches = []
    low, high = FIRST, FIRST + 60
    for _ in range(6):
        found = search(
            parts_of(log, [(low, high)], forward=forward), only=[(low, high)], forward=forward, limit=1
        )
        matches += found.matches
        low, high = (found.position, high) if forward else (low, found.position + 1)

    assert sorted(matches) == [FIRST + n for n in range(0, 60, 10)]
    assert matches == sorted(matches, reverse=not forward)


def test_search_reads_only_requested_messages(log):
    found = search(parts_of(log), only=[(FIRST + 30, FIRST + 31)])

    assert found.matches == [FIRST + 30]
    assert found.scanned < 20 * len(FILL)


def test_step_is_about_so_many_bytes(log):
    parts = parts_of(log, most=1)

    assert len(parts) == 1
    assert parts[0].first == FIRST


def test_later_appends_are_not_read(shop):
    shop.publish(b"needle")
    parts = parts_of(shop)
    shop.publish(b"needle")

    assert search(parts).matches == [FIRST]


def test_damage_is_passed_over(log):
    path = log.log(1)
    content = bytearray(path.read_bytes())
    content[300:310] = bytes(10)
    path.write_bytes(content)

    assert search(parts_of(log)).matches == [FIRST + n for n in range(10, 60, 10)]


def test_removed_file_is_error_at_its_range(log):
    parts = parts_of(log)
    log.log(2).unlink()
    looking = Search(parts, Contains(b"needle"), [(0, 1 << 54)], forward=True, limit=100)
    found = Matches(-1)

    with pytest.raises(FileNotFoundError):
        looking.run(found)

    assert looking.current.segment is log.store.segments[1]
    assert found.position == log.store.segments[1].first


def test_log_without_disk_is_looked_through_as_well():
    log = MessageLog(None, FIRST, 100)
    encoder = Encoder(MessageIds(1), FIRST)
    for n in range(6):
        log.append(encoder.batch(Batch([b"a%d" % n, b"b%d" % n]), 1))

    for forward in (True, False):
        parts = parts_in_memory(Cursor(log), [(FIRST, FIRST + 12)], forward=forward)
        assert search(parts, b"b3", forward=forward).matches == [FIRST + 7]


def test_search_pauses_for_what_it_has_read(log):
    told = []

    Search(
        parts_of(log), Contains(b"needle"), [(0, 1 << 54)], forward=True, limit=100, pause=told.append
    ).run(Matches(-1))

    assert sum(told) > 60 * len(FILL)


def test_headers_are_no_part_of_body():
    log = MessageLog(None, FIRST, 100)
    batch = Batch([join({"needle": "1"}, b"hay"), join({}, b"needle")], has_headers=True)
    log.append(Encoder(MessageIds(1), FIRST).batch(batch, 1))

    assert search(parts_in_memory(Cursor(log), [(FIRST, FIRST + 2)], forward=True)).matches == [FIRST + 1]
