"""One turn: messages are stored before replies are sent; what happens when they cannot be stored."""

import asyncio
import errno
import struct
import threading
import time

import pytest

from nsqd.engine.limits import Limits
from nsqd.log.disk import Disk
from nsqd.server.fsync import SYNC_PAUSE_NS
from nsqd.server.write_batch import NotStored
from nsqd.storage.topic_log import store_of
from tests.support.disks import FullDisk
from tests.support.turns import Bench, Client, Wire
from tests.support.wire import sized


async def test_http_publishers_get_success_or_failure(tmp_path):
    disk = FullDisk(room=1000)
    bench = Bench(tmp_path, disk)
    topic = bench.broker.topic("t", 1)
    topic.stage(b"fits", 1)
    await bench.write_batch.stored(topic)
    topic.stage(b"x" * 2000, 1)

    with pytest.raises(NotStored, match="no space left on device"):
        await bench.write_batch.stored(topic)


async def test_strict_mode_delays_no_client_that_publishes_nothing(tmp_path):
    bench = Bench(tmp_path, sync_every=1)
    publisher, reader = bench.connect(), bench.connect()
    publisher.says(b"PUB t\n" + sized(b"1"))
    reader.says(b"SUB t c\n")

    bench.write_batch.run()

    assert (publisher.replies, reader.replies) == ([], [(0, b"OK")])
    await bench.fsync.synced()


async def until_durable(bench):
    store = store_of(bench.broker.topics["t"])
    async with asyncio.timeout(60):  # an fsync waits for other data on its way to the disk
        while store.segments.synced < store.segments.end:  # noqa: ASYNC110 - the store send no event
            await asyncio.sleep(0.001)


async def test_sync_every_bounds_rate_of_fsyncs(tmp_path):
    bench = Bench(tmp_path, sync_every=2)
    client = bench.connect()
    began = time.monotonic()
    for _ in range(100):
        client.says(b"MPUB t\n" + sized(struct.pack(">I", 2) + sized(b"a") + sized(b"b")))
        bench.write_batch.run()
        # A sync that was begun can run now.
        await asyncio.sleep(0.0005)

    await until_durable(bench)

    assert len(client.replies) == 100
    assert 1 <= bench.fsync.count <= 2 + (time.monotonic() - began) * 1e9 / SYNC_PAUSE_NS


async def test_created_topics_are_notified_before_their_messages_move(tmp_path):
    bench = Bench(tmp_path)
    bench.connect().says(b"SUB t c\nPUB t\n" + sized(b"1"))

    await bench.rest()

    assert [event.change.value for event in bench.events] == ["topic created", "channel created"]


async def test_first_client_that_waits_is_answered_at_once_the_others_share(tmp_path):
    bench = Bench(tmp_path)
    clients = [bench.connect() for _ in range(4)]
    for client in clients:
        client.says(b"PUB t\n" + sized(b"x"), waits=True)
    assert [client.replies for client in clients] == [[(0, b"OK")], [], [], []]

    await bench.rest()

    assert [client.replies for client in clients] == [[(0, b"OK")]] * 4
    # One append each for the note that the topic was created, the first message, and the other three.
    assert bench.appends("t") == 3


async def test_failed_answer_of_one_client_leaves_others_theirs(tmp_path):
    bench = Bench(tmp_path)
    faults = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))

    class Broken(Wire):
        def write(self, data):
            raise ValueError("mine alone")

    broken, other = Client(bench, Broken()), bench.connect()
    broken.says(b"PUB t\n" + sized(b"1"))
    other.says(b"PUB t\n" + sized(b"2"))
    told = []
    bench.write_batch.when_stored(bench.broker.topics["t"], told.append)

    await bench.rest()

    assert other.replies == [(0, b"OK")]
    assert told == [""]
    assert [str(fault) for fault in faults] == ["mine alone"]


class SlowSync(Disk):
    """Every fsync waits until the gate is open."""

    def __init__(self):
        self.gate = threading.Event()

    def sync(self, fd):
        assert self.gate.wait(10)
        super().sync(fd)


async def test_cancelled_wait_leaves_fsync_to_publishers(tmp_path):
    disk = SlowSync()
    bench = Bench(tmp_path, disk, sync_every=1)
    client = bench.connect()
    client.says(b"PUB t\n" + sized(b"m"))
    bench.write_batch.run()
    timer = asyncio.create_task(bench.fsync.synced())
    await asyncio.sleep(0)

    timer.cancel()
    await asyncio.gather(timer, return_exceptions=True)
    assert client.replies == []
    disk.gate.set()
    await bench.fsync.synced()

    assert client.replies == [(0, b"OK")]


async def test_publish_during_fsync_is_covered_by_the_next_fsync(tmp_path):
    disk = SlowSync()
    bench = Bench(tmp_path, disk, sync_every=2)
    client = bench.connect()
    for _ in range(2):
        client.says(b"MPUB t\n" + sized(struct.pack(">I", 2) + sized(b"a") + sized(b"b")))
        bench.write_batch.run()
        # The first batch begins a sync.
        await asyncio.sleep(0)
    disk.gate.set()

    await until_durable(bench)


class Unreadable(Disk):
    """Cannot open files for reading while *fails* is set."""

    fails = False

    def open_read(self, path):
        if self.fails:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().open_read(path)


async def test_unreadable_messages_are_reported_and_delivered_later(tmp_path):
    disk = Unreadable()
    bench = Bench(tmp_path, disk)
    bench.broker.limits = Limits(mem_queue_size=1)
    publisher, reader = bench.connect(), bench.connect()
    reader.says(b"SUB t c\n")
    for _ in range(60):
        publisher.says(b"PUB t\n" + sized(b"x" * 10_000))
    await bench.rest()
    disk.fails = True

    reader.says(b"RDY 2500\n")
    await bench.rest()

    channel = bench.broker.topics["t"].channels["c"]
    assert (channel.backlog.pending.count, channel.lost_count, channel.backlog.in_flight.count) == (60, 0, 0)
    assert str(bench.health) == "NOK - too many open files"

    disk.fails = False
    async with asyncio.timeout(20):
        while channel.backlog.pending.count:  # noqa: ASYNC110 - there is no event when the channel tries again
            await asyncio.sleep(0.01)

    await bench.rest()
    assert (channel.backlog.in_flight.count, channel.lost_count) == (60, 0)
    assert str(bench.health) == "OK"


async def test_write_batch_after_stop_is_not_run(tmp_path):
    bench = Bench(tmp_path, Disk())
    topic = bench.broker.topic("t", 1)
    bench.write_batch.close()

    topic.stage(b"too late: the files are closed", 1)
    bench.write_batch.request_turn()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert topic in bench.broker.dirty
