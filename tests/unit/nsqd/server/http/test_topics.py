"""Topics and channels over HTTP, where threads are at work on their files."""

import asyncio
import threading

import pytest

from nsqcore.process.logs import Log, LogLevel
from nsqd.log.disk import Disk
from nsqd.server.changes import Changes
from nsqd.server.http.topics import TopicsApi
from nsqd.server.upkeep import Checkpoints
from nsqd.storage.topic_store import store_of
from tests.support.turns import Bench, sized

QUIET = Log("[test] ", LogLevel.FATAL)


class SlowSync(Disk):
    """Every fsync of a file waits until it is let go."""

    def __init__(self):
        self.gate = threading.Event()

    def sync(self, fd):
        assert self.gate.wait(20)
        super().sync(fd)


class NoLookups:
    """No nsqlookupd is there to be told."""

    def register(self, topic, channel=""):
        pass

    def unregister(self, topic, channel=""):
        pass

    def peers(self):
        return []


class Asked:
    """A request with these arguments."""

    def __init__(self, **arguments):
        self.query = arguments

    def require(self, name):
        return self.query[name]


class Node:
    """A bench with the API of topics, and what follows from their changes."""

    def __init__(self, path, disk):
        self.bench = bench = Bench(path, disk, sync_every=1)
        checkpoints = Checkpoints(bench.broker, bench.data, bench.health, QUIET)
        self.changes = Changes(
            bench.broker,
            bench.data,
            NoLookups(),
            checkpoints,
            bench.health,
            QUIET,
            ask_turn=bench.turn.ask,
            percentiles=(),
            window_ns=0,
        )
        self.api = TopicsApi(
            bench.broker, bench.data, bench.turn, bench.fsync, self.changes, checkpoints, QUIET
        )


@pytest.fixture
async def disk():
    return SlowSync()


@pytest.fixture
async def node(tmp_path, disk):
    return Node(tmp_path, disk)


async def test_a_topic_is_deleted_when_no_fsync_is_at_work_on_its_files(node, disk):
    bench = node.bench
    client = bench.connect()
    client.says(b"PUB t\n" + sized(b"old"))
    bench.turn.run()
    # The job begins.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    store = store_of(bench.broker.topics["t"])
    deleting = asyncio.create_task(node.api.delete_topic(Asked(topic="t")))
    for _ in range(10):
        await asyncio.sleep(0)

    assert not store.deleted
    disk.gate.set()
    await deleting
    assert client.replies == [(0, b"OK")]
    assert store.deleted

    again = bench.connect()
    again.says(b"PUB t\n" + sized(b"new"))
    await bench.rest()
    assert again.replies == [(0, b"OK")]
    assert store_of(bench.broker.topics["t"]).synced == bench.broker.topics["t"].log.next_seq
