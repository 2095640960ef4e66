import pytest

from nsqd.log import cursor
from nsqd.log.disk import Disk
from nsqd.log.encoder import Batch, Encoder
from nsqd.log.frames import Block
from nsqd.log.gaps import CannotRead, Why
from nsqd.log.ids import MessageIds
from nsqd.log.ranges import RangeSet, size_of_range
from nsqd.log.tail import MIN_RESIDENT_BYTES, MessageLog
from tests.support.stores import FIRST, Shop


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    shop.new()
    yield shop
    shop.store.appender.close()
    for segment in shop.store.segments:
        shop.store.segments.cache.forget(segment)


def publish(shop, *bodies, at_ns):
    block = shop.encoder.batch(Batch(list(bodies)), at_ns)
    shop.store.appender.append([block], [], block.first)
    return block


def seen(log, start, end):
    return [
        (first, stop, "block" if isinstance(found, Block) else found.why)
        for first, stop, found in cursor.scan(log, start, end)
    ]


def test_scan_gives_all_of_range_in_order_and_nothing_else(shop):
    shop.publish(b"a", b"b", b"c")
    shop.encoder.skip_to(FIRST + 10)
    shop.publish(b"d", b"e")

    found = seen(shop.store.segments, FIRST + 1, FIRST + 11)

    assert found == [
        (FIRST + 1, FIRST + 3, "block"),
        (FIRST + 3, FIRST + 10, Why.UNUSED),
        (FIRST + 10, FIRST + 11, "block"),
    ]


def test_scan_that_cannot_go_on_says_so_after_what_it_had(shop):
    class Half:
        def read(self, seq, end):
            if seq > FIRST:
                raise CannotRead("input/output error")
            return shop.store.segments.read(seq, end)

    shop.publish(b"a")
    scan = cursor.scan(Half(), FIRST, FIRST + 5)

    assert next(scan)[:2] == (FIRST, FIRST + 1)
    with pytest.raises(CannotRead):
        next(scan)


@pytest.mark.parametrize(("time_ns", "found"), [(0, 0), (10, 0), (11, 2), (20, 2), (25, 3), (30, 3), (31, 5)])
def test_first_message_from_a_time_on_is_found(shop, time_ns, found):
    publish(shop, b"a", b"b", at_ns=10)
    publish(shop, b"c", at_ns=20)
    publish(shop, b"d", b"e", at_ns=30)

    assert cursor.seek(shop.store.segments, time_ns) == FIRST + found
    log = MessageLog(shop.store.segments, FIRST, limit=1)
    log.next_seq = shop.store.segments.end
    assert cursor.seek(log, time_ns) == FIRST + found


def test_time_is_found_far_into_log_without_reading_all_of_it(tmp_path):
    encoder = Encoder(MessageIds(1), FIRST)
    shop = Shop(tmp_path)
    store = shop.new(segment=1 << 20)
    for n in range(60):
        block = encoder.batch(Batch([b"x" * 1000] * 100), n)
        store.appender.append([block], [], block.first)
    reads = []
    store.segments.disk = Watching(reads)

    assert cursor.seek(store.segments, 40) == FIRST + 4000
    assert len(reads) <= 2
    store.appender.close()


def test_time_is_found_in_log_in_memory():
    log = MessageLog(None, FIRST, limit=100)
    encoder = Encoder(MessageIds(1), FIRST)
    for n in (10, 20, 30):
        log.append(encoder.batch(Batch([b"x"]), n))

    assert [cursor.seek(log, time_ns) - FIRST for time_ns in (5, 20, 21, 31)] == [0, 1, 2, 3]


class Watching(Disk):
    def __init__(self, reads):
        self._reads = reads

    def read(self, fd, size, offset):
        self._reads.append(size)
        return super().read(fd, size, offset)


def test_back_is_the_same_as_onward_the_last_first(shop):
    for n in range(40):
        shop.publish(b"%d" % n * 20_000)
    shop.encoder.skip_to(FIRST + 100)
    shop.publish(b"z")
    log = shop.store.segments

    for start, end in (
        (FIRST, FIRST + 101),
        (FIRST + 3, FIRST + 37),
        (FIRST + 50, FIRST + 60),
        (0, FIRST + 2),
    ):
        onward = [seq for low, high, _ in cursor.scan(log, start, end) for seq in range(low, high)]
        back = [
            seq for low, high, _ in cursor.backwards(log, start, end) for seq in reversed(range(low, high))
        ]
        assert back == onward[::-1]


@pytest.mark.parametrize("walk", [cursor.scan, cursor.backwards])
def test_scan_leads_from_disk_to_memory_and_back(shop, walk):
    log = MessageLog(shop.store.segments, FIRST, limit=1)
    for n in range(6):
        log.append(shop.publish(b"%d" % n * (MIN_RESIDENT_BYTES // 2)))
    assert FIRST < log.resident_from < log.next_seq

    found = [
        (seq, block.frames(seq, seq + 1)[-1:])
        for start, stop, block in walk(log, FIRST, log.next_seq)
        for seq in range(start, stop)
    ]

    assert sorted(found) == [(FIRST + n, b"%d" % n) for n in range(6)]


def test_ranges_are_weighed_across_files(tmp_path):
    shop = Shop(tmp_path)
    store = shop.new(segment=4096)
    blocks = [publish(shop, *[b"." * 66] * 20, at_ns=1) for _ in range(6)]
    first, end = blocks[0].first, blocks[-1].next
    assert len(store.segments) > 1

    finished = RangeSet()
    finished.add(first + 30, end - 30)
    assert 120 * 100 <= store.segments.weigh(first, end, size_of_range) <= 120 * 120
    assert 60 * 90 <= store.segments.weigh(first, end + 100, finished.count_missing) <= 60 * 130
    assert store.segments.weigh(0, 0, size_of_range) == store.segments.weigh(0, first, size_of_range) == 0
    assert store.segments.weigh(end, end + 9, size_of_range) == 0
    store.appender.close()


def test_files_before_the_first_message_that_is_weighed_are_not_asked(tmp_path):
    shop = Shop(tmp_path)
    store = shop.new(segment=4096)
    blocks = [publish(shop, *[b"." * 66] * 20, at_ns=1) for _ in range(6)]
    end = blocks[-1].next
    last = store.segments[-1].first
    asked = []

    def count(start, end):
        asked.append((start, end))
        return end - start

    assert 90 <= store.segments.weigh(last - 1, end, count) // (end - last + 1) <= 120
    assert asked == [(last - 1, last), (last, end)]
    store.appender.close()


def test_scattered_messages_are_weighed_page_by_page_and_not_one_by_one(shop):
    publish(shop, *[b"." * 66] * 3000, at_ns=1)
    end = shop.store.segments.end
    finished = RangeSet(FIRST)
    finished.add_all(list(range(FIRST, end, 2)))
    asked = []

    def count(start, end):
        asked.append((start, end))
        return finished.count_missing(start, end)

    assert 1500 * 100 <= shop.store.segments.weigh(0, end, count) <= 1500 * 120
    assert asked == [(FIRST, end)] * 2


@pytest.mark.parametrize("reopened", [False, True])
def test_time_is_found_beside_pages_of_notes(shop, reopened):
    """A note of a restart begins a file, one of a channel may begin a page; neither hides a message."""
    for at_ns in (100, 200, 300):
        shop.store.appender.append([], [b"n" * 200_000], shop.encoder.next_seq)
        publish(shop, b"x" * 100_000, at_ns=at_ns)
        publish(shop, b"y", at_ns=at_ns + 50)
    shop.store.appender.seal()
    shop.store.appender.append([], [b"note"], shop.encoder.next_seq)
    if reopened:
        shop.sync()
        shop.reopen()

    found = [
        cursor.seek(shop.store.segments, time_ns) - FIRST
        for time_ns in (0, 100, 101, 151, 250, 251, 350, 351)
    ]

    assert found == [0, 0, 1, 2, 3, 4, 5, 6]
