"""Logs whose files are closed while they are not used."""

import errno

import pytest

from nsqd.log.disk import Disk
from nsqd.log.gaps import Gap, Why
from nsqd.log.open_files import OpenFiles
from nsqd.storage.topic_log import TopicLog
from tests.support.descriptors import open_below
from tests.support.disks import FaultyDisk
from tests.support.stores import Shop, finish


class Street:
    """Several shops whose stores share the limit of open files."""

    def __init__(self, path, most, shops=4):
        self.disk = FaultyDisk()
        self.files = OpenFiles(most)
        self.shops = []
        for number in range(shops):
            (path / str(number)).mkdir()
            shop = Shop(path / str(number))
            shop.store = TopicLog(
                self.disk, shop.folder, 1 << 20, shop.warnings.append, origin=1, open_files=self.files
            )
            self.shops.append(shop)

    def __iter__(self):
        return iter(self.shops)

    def close(self):
        for shop in self.shops:
            shop.store.appender.close()


@pytest.fixture
def street(tmp_path):
    street = Street(tmp_path, most=2)
    yield street
    street.close()


def test_open_files_stay_below_limit(street, tmp_path):
    before = len(open_below(tmp_path))
    for body in (b"1", b"2", b"3"):
        for shop in street:
            shop.publish(body)
            assert shop.sync() is None
            assert len(open_below(tmp_path)) - before <= 2

    assert [list(shop.bodies().values()) for shop in street] == [[b"1", b"2", b"3"]] * 4
    assert [shop.names() for shop in street] == [["00000001.log"]] * 4


def test_file_that_is_synced_is_closed_before_one_that_is_not(street):
    first, second, third, _ = street
    first.publish(b"1")
    second.publish(b"1")
    assert second.sync() is None

    third.publish(b"1")

    assert first.store.appender._writer.is_open
    assert not second.store.appender._writer.is_open


def test_file_that_thread_is_syncing_stays_open(street):
    first, second, third, _ = street
    jobs = []
    for shop in (first, second):
        shop.publish(b"1")
        jobs.append((shop, shop.store.appender.begin_sync()))

    third.publish(b"1")
    for shop, job in jobs:
        assert shop.store.appender._writer.is_open
        assert finish(shop.store, job) is None


class CountingLog:
    """An open log that counts the requests to close its file."""

    asked = 0

    def __init__(self, *, busy=False):
        self.busy = busy

    def close_file(self):
        CountingLog.asked += 1
        return not self.busy


@pytest.mark.parametrize(("busy", "most"), [(0, 1000), (8, 1016), (1000, 16_000)])
def test_making_room_asks_few_logs_whatever_their_number(busy, most):
    files = OpenFiles(1000)
    logs = [CountingLog(busy=number < busy) for number in range(2000)]
    for log in logs[:1000]:
        files.touch(log)
    CountingLog.asked = 0
    for log in logs[1000:]:
        files.evict()
        files.touch(log)

    assert CountingLog.asked <= most
    assert busy == 1000 or len(files) == 1000


def test_idle_files_are_closed_and_those_in_use_are_not(tmp_path):
    street = Street(tmp_path, most=100)
    for shop in street:
        shop.publish(b"1")
        shop.sync()
    used = street.shops[0]
    for _ in range(3):
        used.publish(b"2")
        used.sync()
        street.files.close_idle()

    assert [shop.store.appender._writer.is_open for shop in street] == [True, False, False, False]
    street.close()


def test_idle_file_that_is_not_synced_stays_open_until_it_is(tmp_path):
    street = Street(tmp_path, most=100, shops=1)
    (shop,) = street
    shop.publish(b"1")
    for _ in range(3):
        street.files.close_idle()
    assert shop.store.appender._writer.is_open

    shop.sync()
    street.files.close_idle()

    assert not shop.store.appender._writer.is_open
    street.close()


def rested(street):
    shop = street.shops[0]
    shop.publish(b"1")
    shop.sync()
    assert shop.store.appender.close_file()
    return shop


@pytest.mark.parametrize(
    ("call", "code", "reason"),
    [("open_append", errno.EMFILE, "Too many open files"), ("size", errno.EIO, "Input/output error")],
)
def test_file_that_cannot_be_reopened_fails_one_append(street, tmp_path, call, code, reason):
    shop = rested(street)
    before = len(open_below(tmp_path))
    street.disk.faults[call] = code
    with pytest.raises(OSError, match=reason):
        shop.publish(b"refused")
    street.disk.faults.clear()
    assert len(open_below(tmp_path)) == before

    shop.publish(b"2")

    assert list(shop.bodies().values()) == [b"1", b"2"]
    assert shop.names() == ["00000001.log"]


@pytest.mark.parametrize("cut", [False, True])
def test_file_that_was_removed_or_cut_is_left_and_log_continues(street, cut):
    shop = rested(street)
    first = min(shop.bodies())
    if cut:
        Disk().truncate(shop.log(1), 150)
    else:
        shop.log(1).unlink()
    shop.store.segments.cache.forget(shop.store.segments[0])

    more = shop.publish(b"2")

    assert shop.bodies() == {more.first: b"2"}
    assert shop.gaps() == [Gap(first, first + 1, Why.DAMAGED if cut else Why.REMOVED)]
    assert "was removed or changed" in shop.warnings[0]


def test_closed_file_is_sealed_dropped_and_deleted_like_open_one(street, tmp_path):
    before = len(open_below(tmp_path))
    shop = rested(street)
    shop.store.appender.seal()
    assert shop.sync() is None
    assert shop.store.delete() is not None
    other = street.shops[1]
    other.publish(b"x" * 1_100_000)
    other.sync()
    other.store.appender.close_file()
    assert other.drop(other.store.segments.end, 0) == 1
    assert other.sync() is None

    assert len(open_below(tmp_path)) == before
    assert len(street.files) == 0
