"""Topics and channels over HTTP while threads work on their files."""

import asyncio
import json
import threading

import pytest

from nsqcore.http.api import ApiError
from nsqcore.process.logs import Log, LogLevel
from nsqd.engine.state import wanted_of
from nsqd.log.disk import Disk
from nsqd.log.ranges import size_of
from nsqd.server.http.log import GAPS_HEADER, NEXT_HEADER, LogApi
from nsqd.server.http.topics import TopicsApi
from nsqd.server.topology_events import TopologyEvents
from nsqd.storage.topic_log import store_of
from tests.support.http_request import Asked
from tests.support.turns import Bench
from tests.support.wire import sized

QUIET = Log("[test] ", LogLevel.FATAL)


class SlowSync(Disk):
    """Every fsync of a file waits until its gate is open."""

    def __init__(self):
        self.gate = threading.Event()

    def sync(self, fd):
        assert self.gate.wait(20)
        super().sync(fd)


class NoLookups:
    """There is no nsqlookupd to tell."""

    def register(self, topic, channel=""):
        pass

    def unregister(self, topic, channel=""):
        pass

    def peers(self):
        return []


class Node:
    """A bench with the API of topics and the `TopologyEvents` that follow from it."""

    def __init__(self, path, disk, lookups=None):
        self.bench = bench = Bench(path, disk, sync_every=1)
        self.lookups = lookups or NoLookups()
        checkpoints = bench.checkpoints()
        self.changes = TopologyEvents(
            bench.broker,
            bench.data,
            self.lookups,
            checkpoints,
            bench.health,
            QUIET,
            ask_turn=bench.write_batch.request_turn,
            percentiles=(),
            window_ns=0,
        )
        bench.on_event = self.changes.handle
        self.api = TopicsApi(
            bench.broker, bench.data, bench.write_batch, bench.fsync, self.changes, checkpoints, QUIET
        )


@pytest.fixture
async def disk():
    return SlowSync()


@pytest.fixture
async def node(tmp_path, disk):
    return Node(tmp_path, disk)


async def test_topic_is_deleted_when_no_fsync_is_at_work_on_its_files(node, disk):
    bench = node.bench
    client = bench.connect()
    client.says(b"PUB t\n" + sized(b"old"))
    bench.write_batch.run()
    # The fsync begins.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    store = store_of(bench.broker.topics["t"])
    deleting = asyncio.create_task(node.api.delete_topic(Asked(topic="t")))
    for _ in range(10):
        await asyncio.sleep(0)

    assert not store.segments.deleted
    disk.gate.set()
    await deleting
    assert client.replies == [(0, b"OK")]
    assert store.segments.deleted

    again = bench.connect()
    again.says(b"PUB t\n" + sized(b"new"))
    await bench.rest()
    assert again.replies == [(0, b"OK")]
    assert store_of(bench.broker.topics["t"]).segments.synced == bench.broker.topics["t"].log.next_seq


async def test_topic_is_not_deleted_after_decommission_began(node, disk):
    bench = node.bench
    client = bench.connect()
    client.says(b"PUB t\n" + sized(b"m"))
    bench.write_batch.run()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    deleting = asyncio.create_task(node.api.delete_topic(Asked(topic="t")))
    for _ in range(10):
        await asyncio.sleep(0)
    bench.broker.decommissioning = True
    disk.gate.set()

    with pytest.raises(ApiError, match="DECOMMISSIONED"):
        await deleting

    assert "t" in bench.broker.topics


# --- a new topic, and nsqlookupd has not named its channels yet ---


class SlowLookups(NoLookups):
    """Names a channel when its gate is open."""

    connected = True

    def __init__(self):
        self.gate = asyncio.Event()

    def peers(self):
        return [self]

    async def channels_of(self, topic):
        await self.gate.wait()
        return ["known"]


@pytest.fixture
async def asking(tmp_path):
    """A node that asks nsqlookupd about each new topic, until the gate is opened."""
    node = Node(tmp_path, Disk(), SlowLookups())
    yield node
    await node.changes.finish()


async def rounds(bench, number=20):
    for _ in range(number):
        await bench.rest()
        await asyncio.sleep(0)


async def test_topic_creation_waits_for_channels_of_other_nodes(asking):
    creating = asyncio.create_task(asking.api.create_topic(Asked(topic="t")))
    await rounds(asking.bench)

    assert "t" in asking.bench.broker.topics
    assert not creating.done()

    asking.lookups.gate.set()
    await rounds(asking.bench)
    await creating

    assert list(asking.bench.broker.topics["t"].channels) == ["known"]


async def test_channel_of_new_topic_is_emptied_of_what_was_published_before(asking):
    client = asking.bench.connect()
    client.says(b"PUB t\n" + sized(b"early"))
    await rounds(asking.bench)
    topic = asking.bench.broker.topics["t"]
    asking.bench.broker.channel(topic, "known")
    emptying = asyncio.create_task(asking.api.empty_channel(Asked(topic="t", channel="known")))
    await rounds(asking.bench)

    assert client.replies == [(0, b"OK")]
    assert not emptying.done()

    asking.lookups.gate.set()
    await rounds(asking.bench)
    await emptying

    assert topic.message_count == 1
    assert topic.channels["known"].backlog.pending.count == 0


async def test_new_topic_that_is_deleted_while_it_is_waited_for_is_not_there(asking):
    asking.bench.broker.topic("t", 0)
    await rounds(asking.bench)
    pausing = asyncio.create_task(asking.api.pause_topic(Asked(topic="t")))
    await rounds(asking.bench)
    assert not pausing.done()
    asking.bench.broker.delete_topic("t")
    asking.lookups.gate.set()
    await rounds(asking.bench)

    with pytest.raises(ApiError, match="TOPIC_NOT_FOUND"):
        await pausing


async def test_topic_created_again_is_waited_for(asking):
    first = asyncio.create_task(asking.api.create_topic(Asked(topic="t")))
    await rounds(asking.bench)
    making = asyncio.create_task(asking.api.create_channel(Asked(topic="t", channel="own")))
    await rounds(asking.bench)
    asking.bench.data.delete(asking.bench.broker.topics["t"])
    asking.bench.broker.delete_topic("t")
    asking.bench.broker.topic("t", 1)
    asking.lookups.gate.set()
    asking.lookups.gate = asyncio.Event()
    await rounds(asking.bench)
    assert first.done()
    assert not making.done()
    asking.lookups.gate.set()
    await rounds(asking.bench)
    await making

    assert sorted(asking.bench.broker.topics["t"].channels) == ["known", "own"]


# --- a place in a log whose files were compacted ---

LARGE = b"x" * 400_000


class SlowIndex(Disk):
    """Every index is read when its gate is open."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()

    def read_file(self, path):
        if path.suffix == ".index":
            self.asked.set()
            assert self.gate.wait(20)
        return super().read_file(path)


class Compacted(Node):
    """A topic in which a restart has skipped numbers, and of whose first messages half are left."""

    def __init__(self, path):
        self.disk = SlowIndex()
        super().__init__(path, self.disk)

    async def publish(self, *bodies):
        client = self.bench.connect()
        for body in bodies:
            client.says(b"PUB t\n" + sized(body))
        await self.bench.rest()

    def compact(self):
        topic = self.topic
        store = store_of(topic)
        job = store.cleaner.begin_compaction(wanted_of(topic), covered_notes=store.segments.notes)
        job.run()
        return store.cleaner.end_compaction(job)

    @property
    def topic(self):
        return self.bench.broker.topics["t"]

    @property
    def depth(self):
        return self.topic.channels["c"].backlog.pending.count

    async def seek(self, to="earliest"):
        answer = await self.api.seek_channel(Asked(topic="t", channel="c", to=to))
        return json.loads(answer.body)["pending"]


@pytest.fixture
async def compacted(tmp_path):
    node = Compacted(tmp_path)
    topic = node.bench.broker.topic("t", 0)
    channel = node.bench.broker.channel(topic, "c")
    await node.publish(*[LARGE] * 12)
    first = topic.log.log_start
    store_of(topic).appender.seal()
    await node.bench.rest()
    topic.skip_to(topic.log.next_seq + (1 << 40))
    await node.publish(LARGE, LARGE)
    store_of(topic).appender.seal()
    await node.publish(b"newest")
    node.bench.broker.finish_messages(topic, channel, range(first, first + 6))
    await node.bench.rest()
    assert node.compact() > 0
    return node


async def test_seek_to_start_skips_unused_numbers(compacted):
    assert await compacted.seek() == 9
    assert compacted.depth == 9


async def test_channel_created_at_position_skips_unused_numbers(compacted):
    await compacted.api.create_channel(Asked(topic="t", channel="new", start="earliest"))

    assert compacted.topic.channels["new"].backlog.pending.count == 9


async def test_sought_and_new_channels_know_removed_messages(compacted):
    """A reader of the log by sequence must not take the removed messages for lost ones."""
    await compacted.api.create_channel(Asked(topic="t", channel="new", start="earliest"))
    await compacted.seek()
    made, sought = compacted.topic.channels["new"], compacted.topic.channels["c"]
    first, end = compacted.topic.log.log_start, compacted.topic.log.next_seq

    for channel in (made, sought):
        pending = channel.backlog.unfinished(first, end)
        assert size_of(channel.absent) + size_of(pending) == end - min(channel.absent + pending)[0]
        assert size_of(pending) == 9


@pytest.mark.parametrize("name", ["c", "new", ""])
async def test_numbers_skipped_by_restart_are_unused_in_compacted_file(compacted, name):
    topic = compacted.topic
    channel = topic.channels["c"]
    lowest = channel.backlog.lowest()
    compacted.bench.broker.finish_messages(topic, channel, range(lowest + 1, lowest + 6))
    await compacted.bench.rest()
    assert compacted.compact() > 0
    await compacted.api.create_channel(Asked(topic="t", channel="new", start="earliest"))
    api = LogApi(compacted.bench.broker, compacted.bench.data, compacted.bench.write_batch)
    topic.log.release(topic.log.next_seq)
    sizes = {}
    start = topic.log.log_start
    while start < topic.log.next_seq:
        channel = {"channel": name} if name else {}
        answer = await api.range(Asked(topic="t", start=str(start), end=str(topic.log.next_seq), **channel))
        start = int(answer.headers[NEXT_HEADER])
        for gap in filter(None, answer.headers.get(GAPS_HEADER, "").split(", ")):
            numbers, why = gap.split()
            first, end = map(int, numbers.split("-"))
            sizes[why] = sizes.get(why, 0) + end - first

    finished = {"compacted": 6, "earlier": 5} if name == "new" else {"compacted": 11}
    assert sizes == finished | {"unused": 1 << 40}


async def test_channel_deleted_during_seek_is_not_found(compacted):
    compacted.disk.gate.clear()
    seeking = asyncio.create_task(compacted.seek())
    await asyncio.to_thread(compacted.disk.asked.wait, 20)
    compacted.bench.broker.delete_channel(compacted.topic, "c")
    compacted.disk.gate.set()

    with pytest.raises(ApiError, match="CHANNEL_NOT_FOUND"):
        await seeking


async def test_seek_covers_files_compacted_meanwhile(compacted):
    compacted.disk.gate.clear()
    seeking = asyncio.create_task(compacted.seek())
    await asyncio.to_thread(compacted.disk.asked.wait, 20)
    channel = compacted.topic.channels["c"]
    left = channel.backlog.unfinished(0, channel.backlog.end)
    compacted.bench.broker.finish_messages(compacted.topic, channel, range(left[0][0], left[0][0] + 4))
    compacted.disk.gate.set()
    assert compacted.compact() > 0

    assert await seeking == 5
    assert compacted.depth == 5


async def test_channel_created_meanwhile_is_unchanged(compacted):
    compacted.disk.gate.clear()
    making = asyncio.create_task(
        compacted.api.create_channel(Asked(topic="t", channel="new", start="earliest"))
    )
    await asyncio.to_thread(compacted.disk.asked.wait, 20)
    compacted.bench.broker.channel(compacted.topic, "new")
    compacted.disk.gate.set()
    await making

    assert compacted.topic.channels["new"].backlog.pending.count == 0
