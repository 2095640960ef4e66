"""What follows when topics and channels are created and deleted."""

import asyncio
import errno
import io
import threading

import pytest

from nsqcore.process.logs import Log, LogLevel
from nsqd.engine.broker import Broker, Change, Event
from nsqd.engine.limits import Limits
from nsqd.log.disk import Disk
from nsqd.log.ids import MessageIds
from nsqd.log.ranges import size_of
from nsqd.server.health import Health
from nsqd.server.lookup.peer import LookupPeerState
from nsqd.server.topology_events import TopologyEvents
from nsqd.storage import metadata
from nsqd.storage.data_path import DataPath, StorageOptions
from nsqd.storage.topic_log import store_of
from tests.support.turns import Bench
from tests.support.wire import sized


class NoPeers:
    """There is no nsqlookupd."""

    def peers(self):
        return []

    def register(self, topic, channel=""):
        pass

    def unregister(self, topic, channel=""):
        pass


def events_of(broker, data, *, lookups=None, checkpoints=None, health=None, log=None, after_s=0.0):
    return TopologyEvents(
        broker,
        data,
        lookups or NoPeers(),
        checkpoints,
        health or Health(),
        log or Log("[test] ", LogLevel.FATAL),
        ask_turn=lambda: None,
        percentiles=(),
        window_ns=0,
        persist_after_s=after_s,
    )


class SlowDisk(Disk):
    """Replaces a file when its gate is open, and counts the threads that do so concurrently."""

    def __init__(self):
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.busy = self.most = 0

    def replace(self, path, content, *, durable):
        self.busy += 1
        self.most = max(self.most, self.busy)
        self.entered.set()
        assert self.gate.wait(20)
        super().replace(path, content, durable=durable)
        self.busy -= 1


async def test_stop_waits_for_thread_that_writes_metadata(tmp_path):
    disk = SlowDisk()
    data = DataPath(tmp_path, StorageOptions(), lambda _: None, disk)
    broker = Broker(MessageIds(1), Limits(), data.create_log)
    changes = events_of(broker, data)
    broker.restore_topic("before", 1)
    changes.persist_soon()
    while not disk.entered.is_set():  # noqa: ASYNC110 - it is a thread that enters
        await asyncio.sleep(0)
    broker.restore_topic("while", 1)
    stopping = asyncio.create_task(changes.finish())
    for _ in range(10):
        await asyncio.sleep(0)
    disk.gate.set()
    await stopping

    assert disk.most == 1
    listed = metadata.load(disk, tmp_path, lambda _: None).topics
    assert [(topic.name, topic.log_id) for topic in listed] == [
        (name, store_of(topic).appender.log_id) for name, topic in sorted(broker.topics.items())
    ]
    assert [topic.name for topic in listed] == ["before", "while"]


class OnceBroken(Disk):
    """The first file that is replaced cannot be written."""

    def __init__(self):
        self.failed = False

    def replace(self, path, content, *, durable):
        if not self.failed:
            self.failed = True
            raise OSError(errno.EIO, "Input/output error")
        super().replace(path, content, durable=durable)


async def test_metadata_not_written_at_start_is_written_without_change(tmp_path):
    data = DataPath(tmp_path, StorageOptions(), lambda _: None, OnceBroken())
    health = Health()
    broker = Broker(MessageIds(1), Limits(), data.create_log)
    changes = events_of(broker, data, health=health, after_s=0.001)

    await changes.start()
    assert not health.ok
    async with asyncio.timeout(20):
        while not health.ok:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.001)

    assert (tmp_path / "nsqd.dat").exists()


class DeadPeers(NoPeers):
    """There is an nsqlookupd, but no connection to it."""

    def peers(self):
        return [LookupPeerState("127.0.0.1:4160", False, "connect - connection refused", 0)]


@pytest.mark.parametrize("lookups", [NoPeers(), DeadPeers()])
async def test_new_topic_whose_channels_elsewhere_cannot_be_asked_for_is_named(tmp_path, lookups):
    said = io.StringIO()
    data = DataPath(tmp_path, StorageOptions(), lambda _: None)
    broker = Broker(MessageIds(1), Limits(), data.create_log)
    changes = events_of(broker, data, lookups=lookups, log=Log("", LogLevel.ERROR, said))
    topic = broker.topic("t", 0)

    changes.handle(Event(Change.TOPIC_CREATED, topic))
    await changes.finish()

    sentence = " ERROR: no available nsqlookupd to query for channels to pre-create for topic t\n"
    assert said.getvalue().endswith(sentence) is isinstance(lookups, DeadPeers)
    assert said.getvalue().count("\n") == isinstance(lookups, DeadPeers)


async def test_memory_of_deleted_topic_is_freed_in_steps(tmp_path):
    bench = Bench(tmp_path)
    changes = events_of(bench.broker, bench.data, checkpoints=bench.checkpoints(), health=bench.health)
    publisher = bench.connect()
    for number in range(2000):
        publisher.says(b"PUB t\n" + sized(b"%d" % number))
        bench.write_batch.run()
    topic = bench.broker.topics["t"]
    awaiting_registration = [size_of(topic.log.extents())]

    bench.broker.delete_topic("t")
    changes.handle(Event(Change.TOPIC_DELETED, topic))
    while size_of(topic.log.extents()):
        awaiting_registration.append(size_of(topic.log.extents()))
        await asyncio.sleep(0)
    await changes.finish()

    assert len(awaiting_registration) > 3
    assert awaiting_registration == sorted(awaiting_registration, reverse=True)
