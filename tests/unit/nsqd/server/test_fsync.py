"""Which publishers wait for which fsync, whom a failed one affects, and when the loop itself syncs."""

import asyncio
import errno
import os
import shutil
import struct
import threading
from pathlib import Path

import pytest

from nsqd.log.disk import CannotOpen, Disk
from nsqd.server.fsync import THREADS
from nsqd.server.write_batch import NotStored
from nsqd.storage.metadata import Metadata
from nsqd.storage.topic_log import store_of
from tests.support.turns import Bench
from tests.support.waiting import eventually
from tests.support.wire import sized

OK = (0, b"OK")
FAILED = (1, b"E_PUB_FAILED PUB failed input/output error")


class TopicDisk(Disk):
    """Fails or delays the fsyncs of some topics, by the names of their folders, and records all fsyncs."""

    def __init__(self):
        self.broken = set()
        # Fsyncs of a topic wait until its gate is open.
        self.gates = {}
        self.reached = []
        self.synced = []
        self.folders = []

    def sync(self, fd):
        path = Path(f"/proc/self/fd/{fd}").readlink()
        topic = path.parent.name.removesuffix(".topic")
        if gate := self.gates.get(topic):
            self.reached.append(topic)
            assert gate.wait(20)
        self.synced.append((topic, threading.current_thread() is threading.main_thread()))
        if topic in self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)

    def sync_folder(self, path):
        if path.suffix != ".topic" and "/" in self.gates:
            assert self.gates["/"].wait(20)
        self.folders.append(path)
        super().sync_folder(path)


@pytest.fixture
def disk():
    return TopicDisk()


@pytest.fixture
async def strict(tmp_path, disk):
    """Every publisher waits; no disk is fast enough for the loop."""
    return Bench(tmp_path, disk, sync_every=1, fast_s=0.0)


@pytest.fixture
async def fast(tmp_path, disk):
    """Every publisher waits; any disk is fast enough for the loop."""
    return Bench(tmp_path, disk, sync_every=1, fast_s=60.0)


async def settled(bench, *clients, replies=1):
    """Wait until each client has *replies* replies."""
    bench.write_batch.run()
    async with asyncio.timeout(20):
        while any(len(client.replies) < replies for client in clients):  # noqa: ASYNC110 - threads send no event
            await asyncio.sleep(0.001)


def publish(bench, topic, body=b"m"):
    client = bench.connect()
    client.says(b"PUB %b\n" % topic + sized(body))
    return client


async def known(bench):
    """Create a topic, so that a thread has measured how fast the disk is."""
    for _ in range(2):
        await settled(bench, publish(bench, b"t"))


async def test_failed_fsync_fails_publishers_of_its_topic_only(strict, disk):
    disk.broken.add("bad")
    bad, good = publish(strict, b"bad"), publish(strict, b"good")

    await strict.rest()

    assert (bad.replies, bad.closed) == ([FAILED], True)
    assert (good.replies, good.closed) == ([OK], False)
    assert str(strict.health).endswith("an fsync failed - input/output error")


@pytest.mark.parametrize("call", ["sync", "sync_folder"])
async def test_failure_of_any_kind_is_failed_fsync(strict, disk, monkeypatch, call):
    def fails(_):
        raise ValueError("not what was expected")

    monkeypatch.setattr(disk, call, fails)
    client = publish(strict, b"t")

    await settled(strict, client)

    assert client.replies == [(1, b"E_PUB_FAILED PUB failed not what was expected")]


async def test_error_that_was_waited_for_is_logged_like_any_other(strict, disk, monkeypatch):
    logged = []
    monkeypatch.setattr(strict.clients.log, "error", lambda text, *args: logged.append(text % args))
    disk.broken.add("bad")
    publish(strict, b"bad")

    await strict.rest()

    assert any(line.endswith("] - E_PUB_FAILED PUB failed input/output error") for line in logged), logged


async def test_replies_before_failed_fsync_are_sent(strict, disk):
    disk.broken.add("bad")
    client = strict.connect()
    client.says(b"".join(b"PUB %b\n" % topic + sized(b"m") for topic in (b"good", b"bad", b"good")))

    await strict.rest()

    assert client.replies == [OK, FAILED]
    assert client.closed


async def test_publishers_do_not_wait_for_fsync_of_another_topic(strict, disk):
    gate = disk.gates["held"] = threading.Event()
    awaiting_registration, free = publish(strict, b"held"), publish(strict, b"free")

    await settled(strict, free)

    assert (free.replies, awaiting_registration.replies) == ([OK], [])
    gate.set()
    await strict.rest()
    assert awaiting_registration.replies == [OK]


async def test_publishers_wait_for_no_thread_that_others_keep_busy(strict):
    gate = threading.Event()
    loop = asyncio.get_running_loop()
    # The threads are busy, as with many checkpoints of other topics.
    busy = [loop.run_in_executor(None, gate.wait, 20) for _ in range(40)]
    client = publish(strict, b"t")

    await settled(strict, client)

    assert client.replies == [OK]
    assert not any(job.done() for job in busy)
    gate.set()
    await asyncio.gather(*busy)


async def test_replies_keep_their_order_whichever_topic_is_synced_first(strict, disk):
    gate = disk.gates["held"] = threading.Event()
    client, other = strict.connect(), strict.connect()
    client.says(b"PUB held\n" + sized(b"m"))
    strict.write_batch.run()
    client.says(b"MPUB free\n" + sized(struct.pack(">I", 1) + sized(b"m")))
    strict.write_batch.run()
    client.says(b"CLS\n")
    other.says(b"PUB free\n" + sized(b"m"))

    await settled(strict, other)

    assert client.replies == []
    gate.set()
    await settled(strict, client, replies=3)
    assert client.replies == [OK, OK, (1, b"E_INVALID cannot CLS in current state")]


async def test_new_topics_that_wait_for_data_path_share_its_next_sync(strict, disk, tmp_path):
    gate = disk.gates["/"] = threading.Event()
    topics = [b"t%d" % n for n in range(40)]
    clients = [publish(strict, topic) for topic in topics]
    strict.write_batch.run()
    async with asyncio.timeout(20):
        # A topic waits for the data path only after its own fsync.
        while strict.fsync.count < len(topics):  # noqa: ASYNC110 - threads send no event
            await asyncio.sleep(0.001)
    assert not any(client.replies for client in clients)
    gate.set()

    await strict.rest()

    assert all(client.replies == [OK] for client in clients)
    assert set(disk.folders) == {tmp_path, *(tmp_path / f"{topic.decode()}.topic" for topic in topics)}
    # One for the first topic, one for those that came while that ran, and one for the last.
    assert disk.folders.count(tmp_path) <= 3


async def test_known_topic_is_synced_before_new_topics(strict, disk):
    await settled(strict, publish(strict, b"old"))
    gate = threading.Event()
    names = [f"new{n}" for n in range(2 * THREADS)]
    disk.gates.update(dict.fromkeys(names, gate))
    new = [publish(strict, name.encode()) for name in names]
    strict.write_batch.run()
    await asyncio.sleep(0)
    old = publish(strict, b"old")

    await settled(strict, old)

    assert old.replies == [OK]
    assert not any(client.replies for client in new)
    gate.set()
    await strict.rest()
    assert all(client.replies == [OK] for client in new)


async def test_loop_syncs_for_few_publishers_on_fast_disk(fast, disk):
    await known(fast)
    disk.synced.clear()
    client = publish(fast, b"t")

    fast.write_batch.run()

    assert client.replies == [OK]
    assert disk.synced == [("t", True)]


async def test_fsync_in_loop_that_fails_is_no_ok(fast, disk):
    await known(fast)
    disk.broken.add("t")
    client = publish(fast, b"t")

    fast.write_batch.run()

    assert (client.replies, client.closed) == ([FAILED], True)
    assert not fast.health.ok


async def test_pipelining_publisher_is_synced_by_thread(fast, disk):
    await known(fast)
    disk.synced.clear()
    client = fast.connect()
    client.says((b"PUB t\n" + sized(b"m")) * 2)

    fast.write_batch.run()
    assert client.replies == []
    await fast.rest()

    assert client.replies == [OK, OK]
    assert disk.synced == [("t", False)]


async def test_loop_never_syncs_on_slow_disk(strict, disk):
    for _ in range(3):
        await settled(strict, publish(strict, b"t"))

    assert disk.synced == [("t", False)] * 3


async def test_fsync_percentiles_are_measured(strict):
    assert strict.fsync.percentile_s(0.99) == 0.0
    for _ in range(3):
        await settled(strict, publish(strict, b"t"))

    assert 0 < strict.fsync.percentile_s(0.5) <= strict.fsync.percentile_s(0.99)


async def test_quiesced_store_is_touched_by_no_thread(strict, disk):
    gate = disk.gates["t"] = threading.Event()
    first = publish(strict, b"t")
    strict.write_batch.run()
    await asyncio.sleep(0)
    store = store_of(strict.broker.topics["t"])
    resting = asyncio.create_task(strict.fsync.quiesce(store))
    await asyncio.sleep(0)
    assert not resting.done()
    gate.set()
    await resting
    assert first.replies == [OK]

    second = publish(strict, b"t")
    strict.write_batch.run()
    other = publish(strict, b"other")
    await settled(strict, other)
    assert second.replies == []
    strict.fsync.resume(store)
    await strict.rest()

    assert second.replies == [OK]


async def test_cancelled_quiesce_lets_store_be_synced(strict, disk):
    gate = disk.gates["t"] = threading.Event()
    first = publish(strict, b"t")
    strict.write_batch.run()
    await asyncio.sleep(0)
    resting = asyncio.create_task(strict.fsync.quiesce(store_of(strict.broker.topics["t"])))
    await asyncio.sleep(0)
    second = publish(strict, b"t")
    strict.write_batch.run()
    resting.cancel()
    gate.set()

    async with asyncio.timeout(20):
        await strict.rest()

    assert (first.replies, second.replies, resting.cancelled()) == ([OK], [OK], True)


async def test_publisher_to_deleted_topic_is_answered_after_durable_deletion(strict, disk):
    await settled(strict, publish(strict, b"t"))
    topic = strict.broker.topics["t"]
    await strict.fsync.quiesce(store_of(topic))
    client = publish(strict, b"t")
    strict.write_batch.run()
    gate = disk.gates["/"] = threading.Event()
    strict.data.delete(topic)
    strict.fsync.resume(store_of(topic))
    for _ in range(10):
        await asyncio.sleep(0)

    # A power cut may bring the folder back, and then nothing in it may be missing.
    assert (client.replies, strict.data.deleted) == ([], [])
    gate.set()
    await settled(strict, client)
    assert (client.replies, len(strict.data.deleted)) == ([OK], 1)


async def test_topic_whose_folder_is_removed_while_all_threads_are_busy_is_synced(strict, disk):
    await settled(strict, publish(strict, b"t"))
    gate = threading.Event()
    names = [b"busy%d" % number for number in range(THREADS)]
    for name in names:
        await settled(strict, publish(strict, name))
        disk.gates[name.decode()] = gate
    busy = [publish(strict, name) for name in names]
    before = publish(strict, b"t", b"before")
    strict.write_batch.run()
    await eventually(lambda: len(disk.reached) == THREADS, "busy threads")
    store = store_of(strict.broker.topics["t"])
    shutil.rmtree(store.segments.folder)
    assert not store.appender.check_folder()
    after = publish(strict, b"t", b"after")
    strict.write_batch.run()
    gate.set()

    await settled(strict, *busy, before, after)

    assert [client.replies for client in busy] == [[OK]] * THREADS
    assert after.replies == [OK]


# --- after a failed fsync


REFUSED = (1, b"E_PUB_FAILED PUB failed no publishes until a restart: an fsync failed - input/output error")


@pytest.mark.parametrize("sync_every", [1, 10])
async def test_topic_accepts_no_publishes_from_failed_fsync_until_restart(tmp_path, disk, sync_every):
    bench = Bench(tmp_path, disk, sync_every=sync_every, fast_s=0.0)
    disk.broken.add("t")
    first = publish(bench, b"t")
    await bench.rest()
    assert first.replies == [FAILED if sync_every == 1 else OK]
    disk.broken.clear()

    for _ in range(3):
        client, other = publish(bench, b"t"), publish(bench, b"other")
        await settled(bench, client, other)
        assert (client.replies, other.replies) == ([REFUSED], [OK])
    sentence = "topic t: no publishes until a restart: an fsync failed - input/output error"
    assert (str(bench.health), bench.health.restart_reason) == (f"NOK - {sentence}", sentence)
    assert not await bench.fsync.synced()

    again = Bench(tmp_path, disk, sync_every=sync_every, fast_s=0.0)
    again.data.restore(again.broker, Metadata(), 1)
    client = publish(again, b"t")
    await settled(again, client)
    assert client.replies == [OK]
    assert again.health.restart_reason == ""
    assert again.broker.topics["t"].backlog.pending.count == 2


async def test_publishers_that_wait_behind_failed_fsync_get_its_error(strict, disk):
    disk.broken.add("t")
    gate = disk.gates["t"] = threading.Event()
    first = publish(strict, b"t")
    strict.write_batch.run()
    await eventually(lambda: disk.reached, "its fsync runs")
    second = publish(strict, b"t")
    strict.write_batch.run()
    gate.set()

    await settled(strict, first, second)

    assert (first.replies, second.replies) == ([FAILED], [FAILED])


async def test_deleted_topic_that_is_made_again_accepts_publishes(strict, disk):
    disk.broken.add("t")
    publish(strict, b"t")
    await strict.rest()
    disk.broken.clear()
    topic = strict.broker.topics["t"]
    strict.broker.delete_topic("t")
    strict.data.delete(topic)
    strict.health.forget("t")

    client = publish(strict, b"t")
    await settled(strict, client)

    assert client.replies == [OK]
    assert strict.health.ok
    assert await strict.fsync.synced()


async def test_change_after_failed_fsync_is_not_durable_and_in_the_next_checkpoint(tmp_path, disk):
    bench = Bench(tmp_path, disk)
    checkpoints = bench.checkpoints()
    topic = bench.broker.topic("t", 0)
    disk.broken.add("t")
    with pytest.raises(NotStored, match="input/output error"):
        await bench.write_batch.stored(topic, durable=True)
    bench.broker.channel(topic, "c")
    with pytest.raises(NotStored, match="no publishes until a restart"):
        await bench.write_batch.note_stored(topic, durable=True)

    await checkpoints._round(0.0)

    again = Bench(tmp_path, disk)
    disk.broken.clear()
    again.data.restore(again.broker, Metadata(), 1)
    assert list(again.broker.topics["t"].channels) == ["c"]


async def test_job_that_cannot_end_is_failed_fsync(strict, disk, monkeypatch):
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
    topic = strict.broker.topic("t", 0)
    await strict.write_batch.stored(topic, durable=True)
    store_of(topic).appender.seal()

    def bug(*_, **__):
        raise ValueError("a bug")

    monkeypatch.setattr(disk, "replace", bug)
    topic.stage(b"m", 1)
    with pytest.raises(NotStored, match="a bug"):
        await strict.write_batch.stored(topic, durable=True)

    assert reported == ["a sync did not end"]
    assert store_of(topic).appender.failed


async def test_file_that_cannot_be_opened_is_included_in_the_next_fsync(strict, disk, monkeypatch):
    topic = strict.broker.topic("t", 0)
    real = disk.sync_folder

    def refused(path):
        raise CannotOpen(errno.EMFILE, "too many open files", str(path))

    monkeypatch.setattr(disk, "sync_folder", refused)
    with pytest.raises(NotStored, match="too many open files"):
        await strict.write_batch.stored(topic, durable=True)
    assert str(strict.health) == "NOK - too many open files"
    assert strict.health.restart_reason == ""
    monkeypatch.setattr(disk, "sync_folder", real)

    assert await strict.fsync.synced()

    assert strict.health.ok
    assert store_of(topic).segments.synced_notes == store_of(topic).segments.notes


async def test_names_of_deleted_topics_are_synced_again_with_the_next_name(tmp_path, disk, monkeypatch):
    bench = Bench(tmp_path, disk)
    await settled(bench, publish(bench, b"t"))
    await bench.fsync.synced()
    real = disk.sync_folder

    def failing(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(disk, "sync_folder", failing)
    bench.data.delete(bench.broker.topics["t"])
    with pytest.raises(NotStored):
        await bench.write_batch.names_durable()
    assert len(bench.data.deleted_unsynced) == 1
    monkeypatch.setattr(disk, "sync_folder", real)

    publish(bench, b"other")
    await bench.rest()

    assert (bench.data.deleted_unsynced, len(bench.data.deleted)) == ([], 1)
