"""The work of checkpoint rounds outside the event loop."""

import asyncio
import errno
import gc
import shutil
import threading
import time
from pathlib import Path

import pytest

from nsqd.engine import promoted
from nsqd.engine.channel import Channel
from nsqd.engine.topic import Topic
from nsqd.log.disk import Disk
from nsqd.replication.local_copy import LocalCopy, open_topic
from nsqd.server.clock import now_ns
from nsqd.storage.metadata import Metadata
from nsqd.storage.topic_log import store_of
from tests.support.machine import Machine
from tests.support.turns import Bench
from tests.support.waiting import eventually
from tests.support.wire import sized


class Removals(Disk):
    """Records the removed files, and whether the event loop's thread removes them."""

    def __init__(self):
        self.loop = threading.current_thread()
        self.removed = []

    def remove(self, path):
        self.removed.append((path.name, threading.current_thread() is self.loop))
        super().remove(path)


async def test_file_removed_during_write_is_missed_by_the_next_checkpoint(tmp_path):
    bench = Bench(tmp_path)
    checkpoints = bench.checkpoints()
    publisher, reader = bench.connect(), bench.connect()
    reader.says(b"SUB t c\n")
    publisher.says(b"PUB t\n" + sized(b"before"))
    await bench.rest()
    (tmp_path / "t.topic" / "00000001.log").unlink()
    publisher.says(b"PUB t\n" + sized(b"into nothing"))
    await bench.rest()

    await checkpoints._round(time.monotonic())
    publisher.says(b"PUB t\n" + sized(b"after"))
    await bench.rest()

    (log,) = (tmp_path / "t.topic").glob("*.log")
    assert log.read_bytes().endswith(b"after")
    # Messages in memory are still delivered.
    reader.says(b"RDY 10\n")
    await bench.rest()
    assert reader.session.consumer.message_count == 3


async def test_topic_whose_folder_somebody_removed_has_another_within_two_rounds(tmp_path):
    bench = Bench(tmp_path)
    checkpoints = bench.checkpoints()
    publisher = bench.connect()
    publisher.says(b"PUB t\n" + sized(b"before"))
    await bench.rest()
    await checkpoints._round(time.monotonic())
    shutil.rmtree(tmp_path / "t.topic")
    publisher.says(b"PUB t\n" + sized(b"into nothing"))
    await bench.rest()
    await checkpoints._round(time.monotonic())
    assert not bench.health.ok

    await checkpoints._round(time.monotonic())
    publisher.says(b"PUB t\n" + sized(b"after"))
    await bench.rest()

    assert bench.health.ok
    (log,) = (tmp_path / "t.topic").glob("*.log")
    assert log.read_bytes().endswith(b"after")
    assert list((tmp_path / "t.topic").glob("checkpoint.*"))


class Full(Disk):
    """Has no room for a checkpoint while *full* is set, and never room for the spare."""

    def __init__(self):
        self.full = False

    def allocate(self, fd, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    def replace(self, path, content, *, durable):
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().replace(path, content, durable=durable)


class FullInTheEnd(Full):
    """Says only after *end* is set that it has no room."""

    def __init__(self):
        super().__init__()
        self.asked, self.end = threading.Event(), threading.Event()

    def replace(self, path, content, *, durable):
        if self.full:
            self.asked.set()
            self.end.wait(10)
        super().replace(path, content, durable=durable)


async def test_full_disk_removes_finished_messages_but_not_note_of_new_channel(tmp_path):
    disk = Full()
    bench = Bench(tmp_path, disk)
    checkpoints = bench.checkpoints()
    publisher, reader = bench.connect(), bench.connect()
    publisher.says(b"PUB noted\n" + sized(b"x"))
    await bench.rest()
    for _ in range(2):
        bench.broker.topics["noted"].changed = True
        await checkpoints._round(time.monotonic())
    disk.full = True
    reader.says(b"SUB new c\n")
    for topic in (b"noted", b"new"):
        publisher.says(b"PUB " + topic + b"\n" + sized(b"x" * (1 << 20)))
    await bench.rest()
    for name in ("noted", "new"):
        topic = bench.broker.topics[name]
        bench.broker.empty_topic(topic)
        for channel in topic.channels.values():
            bench.broker.empty_channel(topic, channel)

    for _ in range(3):
        await checkpoints._round(time.monotonic())
    await checkpoints._compactor.close()

    assert (tmp_path / "new.topic" / "00000001.log").exists()
    assert not (tmp_path / "noted.topic" / "00000001.log").exists()


async def test_emptied_files_are_removed_by_thread(tmp_path):
    disk = Removals()
    bench = Bench(tmp_path, disk)
    checkpoints = bench.checkpoints()
    client = bench.connect()
    client.says(b"SUB t c\n")
    publisher = bench.connect()
    for _ in range(3):
        publisher.says(b"PUB t\n" + sized(b"x" * 500_000))
    await bench.rest()
    topic = bench.broker.topics["t"]
    bench.broker.empty_channel(topic, topic.channels["c"])
    await bench.rest()
    for _ in range(3):
        await checkpoints._round(time.monotonic())

    # The round does not wait for the thread.
    await eventually(lambda: ("00000001.log", False) in disk.removed, "the file is removed")
    assert not any(by_loop for name, by_loop in disk.removed if name.endswith(".log"))
    await eventually(lambda: not list((tmp_path / "t.topic").glob("00000001.*")), "nothing of it is left")


async def emptied(bench, checkpoints):
    """A topic with a file whose messages are pending in both checkpoints, but in no channel any more."""
    reader, publisher = bench.connect(), bench.connect()
    reader.says(b"SUB t c\n")
    for _ in range(3):
        publisher.says(b"PUB t\n" + sized(b"x" * 500_000))
    await bench.rest()
    topic = bench.broker.topics["t"]
    for _ in range(2):
        topic.changed = True
        await checkpoints._round(time.monotonic())
    bench.broker.empty_channel(topic, topic.channels["c"])
    await bench.rest()
    return topic


async def test_file_is_removed_when_both_checkpoints_lack_it(tmp_path):
    bench = Bench(tmp_path)
    checkpoints = bench.checkpoints()
    topic = await emptied(bench, checkpoints)
    store = store_of(topic)

    await checkpoints._round(time.monotonic())
    after_one = len(store.segments)
    await checkpoints._round(time.monotonic())

    assert (after_one, len(store.segments)) == (1, 0)
    await checkpoints._compactor.close()


async def test_removed_messages_are_no_loss_at_start(tmp_path):
    bench = Bench(tmp_path)
    checkpoints = bench.checkpoints()
    topic = await emptied(bench, checkpoints)
    for _ in range(3):
        await checkpoints._round(time.monotonic())
    await checkpoints._compactor.close()
    end = topic.log.next_seq

    again = Bench(tmp_path)
    again.data.restore(again.broker, Metadata(), time.time_ns())

    found = again.broker.topics["t"]
    assert topic.log.log_start == end
    assert store_of(found).segments.losses(found.log.log_start) == []
    assert found.log.log_start >= end


class Syncing(Disk):
    """Records the writes, and when all of them are synced."""

    def __init__(self):
        self.done = []

    def replace(self, path, content, *, durable):
        super().replace(path, content, durable=durable)
        self.done.append(path.parent.name)

    def sync_all(self):
        super().sync_all()
        self.done.append("synced")


async def test_clean_stop_syncs_its_last_checkpoints(tmp_path):
    bench = Bench(tmp_path, Syncing())
    client = bench.connect()
    for topic in (b"a", b"b"):
        client.says(b"PUB " + topic + b"\n" + sized(b"x"))
    await bench.rest()
    bench.data.disk.done.clear()

    await bench.checkpoints().write_last()

    assert sorted(bench.data.disk.done[:-1]) == ["a.topic", "b.topic"]
    assert bench.data.disk.done[-1] == "synced"


class Unhurried(Disk):
    """Writes the checkpoint of one topic when the test allows it, those of others immediately."""

    def __init__(self):
        self.begun = threading.Event()
        self.may_go_on = threading.Event()
        self.quick = threading.Event()
        self.written = []

    def replace(self, path, content, *, durable):
        if path.parent.name == "slow.topic":
            self.begun.set()
            self.may_go_on.wait()
        super().replace(path, content, durable=durable)
        self.written.append(path.parent.name)
        if path.parent.name == "quick.topic":
            self.quick.set()


async def test_stop_waits_for_every_checkpoint_that_thread_is_writing(tmp_path):
    disk = Unhurried()
    bench = Bench(tmp_path, disk)
    checkpoints = bench.checkpoints()
    client = bench.connect()
    for topic in (b"slow", b"quick"):
        client.says(b"PUB " + topic + b"\n" + sized(b"x"))
    await bench.rest()
    running = asyncio.create_task(checkpoints.run())
    await asyncio.to_thread(disk.begun.wait)
    await asyncio.to_thread(disk.quick.wait)

    running.cancel()
    for _ in range(100):
        await asyncio.sleep(0)
    ended_early = running.done()
    disk.may_go_on.set()
    await asyncio.wait([running])

    assert not ended_early
    assert "slow.topic" in disk.written


# --- promoted copies


@pytest.fixture
def origin(tmp_path):
    """A node whose log has several files."""
    (tmp_path / "origin").mkdir()
    node = Machine(tmp_path / "origin", 3)
    node.channel()
    for _ in range(5):
        node.publish(b"x" * 1000)
    return node


RECORD = LocalCopy(b"o" * 16, b"o" * 16, 1, Path("copy"), origin_node_id=3)


def promote(bench, tmp_path):
    """Deliver a copy of the origin's topic; its files lie in the folder that is returned."""
    folder = tmp_path / "copy/t.topic"
    shutil.copytree(tmp_path / "origin/t.topic", folder)
    topic = open_topic(bench.data, bench.broker, folder, "t", RECORD)
    promoted.attach(bench.broker, topic, 0)
    return topic, folder


def reopened(bench, folder):
    return open_topic(bench.data, bench.broker, folder, "t", RECORD)


@pytest.mark.usefixtures("origin")
async def test_promoted_copy_has_checkpoints_and_keeps_its_files(tmp_path):
    bench = Bench(tmp_path / "here")
    checkpoints = bench.checkpoints()
    topic, folder = promote(bench, tmp_path)
    before = sorted(path.name for path in folder.glob("*.log"))
    assert len(before) > 1
    log_start = topic.log.log_start
    bench.broker.empty_channel(bench.broker.topics["t"], bench.broker.topics["t"].channels["c"])

    for _ in range(3):
        topic.changed = True
        await checkpoints._round(time.monotonic())

    assert sorted(path.name for path in folder.glob("*.log")) == before
    assert {path.name for path in folder.glob("check*")} == {"checkpoint.0", "checkpoint.1"}
    assert reopened(bench, folder).channels["c"].backlog.lowest() is None
    assert topic.log.log_start == log_start


@pytest.mark.usefixtures("origin")
async def test_change_of_promoted_copy_can_be_written_at_once(tmp_path):
    bench = Bench(tmp_path / "here")
    checkpoints = bench.checkpoints()
    topic, folder = promote(bench, tmp_path)
    bench.broker.delete_channel(bench.broker.topics["t"], "c")

    assert await checkpoints.write_now(topic)

    assert "c" not in reopened(bench, folder).channels


async def test_checkpoint_at_once_is_written_whatever_changes_meanwhile(tmp_path):
    bench = Bench(tmp_path)
    checkpoints = bench.checkpoints()
    bench.connect().says(b"PUB t\n" + sized(b"x"))
    await bench.rest()
    topic = bench.broker.topics["t"]

    writing = asyncio.create_task(checkpoints.write_now(topic))
    await asyncio.sleep(0)
    # As when a replica wants a whole checkpoint while a thread writes one.
    topic.changed = True

    assert await writing


async def test_checkpoint_at_once_that_disk_has_no_room_for_is_not_written(tmp_path):
    disk = Full()
    bench = Bench(tmp_path, disk)
    checkpoints = bench.checkpoints()
    bench.connect().says(b"PUB t\n" + sized(b"x"))
    await bench.rest()
    disk.full = True

    assert not await checkpoints.write_now(bench.broker.topics["t"])


async def test_checkpoint_cancelled_and_then_failed_is_written_again(tmp_path):
    disk = FullInTheEnd()
    bench = Bench(tmp_path, disk)
    checkpoints = bench.checkpoints()
    bench.connect().says(b"PUB t\n" + sized(b"x"))
    await bench.rest()
    topic = bench.broker.topics["t"]
    disk.full = True

    writing = asyncio.create_task(checkpoints.write_now(topic))
    await eventually(disk.asked.is_set, "a thread writes")
    writing.cancel()
    disk.end.set()
    await asyncio.wait([writing])

    assert writing.cancelled()
    assert topic.changed


class NoCheckpoint(Disk):
    """Has no room for checkpoints in one folder."""

    without = None

    def replace(self, path, content, *, durable):
        if path.parent == self.without:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().replace(path, content, durable=durable)

    def write_at(self, fd, data, offset):
        if self.without and Path(f"/proc/self/fd/{fd}").readlink().parent == self.without:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_at(fd, data, offset)


async def without_room(tmp_path):
    """A node without room for the checkpoints of a promoted copy."""
    (tmp_path / "node").mkdir()
    bench = Bench(tmp_path / "node", NoCheckpoint())
    checkpoints = bench.checkpoints()
    topic, folder = promote(bench, tmp_path)
    await checkpoints._round(time.monotonic())
    assert bench.health.ok
    bench.data.disk.without = folder
    topic.changed = True
    await checkpoints._round(time.monotonic())
    assert not bench.health.ok
    return bench, checkpoints, topic


@pytest.mark.usefixtures("origin")
async def test_checkpoints_of_copy_and_of_own_topic_fail_separately(tmp_path):
    bench, checkpoints, topic = await without_room(tmp_path)

    bench.broker.topics["t"].changed = True
    await checkpoints._round(time.monotonic())

    assert str(bench.health) == "NOK - no space left on device"
    bench.data.disk.without = bench.data.path / "t.topic"
    bench.broker.topics["t"].changed = topic.changed = True
    await checkpoints._round(time.monotonic())
    assert not bench.health.ok
    bench.data.disk.without = None
    await checkpoints._round(time.monotonic())
    assert bench.health.ok


@pytest.mark.usefixtures("origin")
@pytest.mark.parametrize("room", [True, False])
async def test_detached_copy_is_no_longer_problem(tmp_path, room):
    bench, checkpoints, topic = await without_room(tmp_path)
    promoted.detach(bench.broker, topic, force=True)
    if room:
        bench.data.disk.without = None

    assert await checkpoints.write_now(topic) is room

    assert bench.health.ok


@pytest.mark.usefixtures("origin")
async def test_deletion_of_topic_is_in_checkpoint_of_its_copy(tmp_path):
    bench, checkpoints, topic = await without_room(tmp_path)
    bench.broker.delete_topic("t")
    assert not await checkpoints.write_now(topic)
    bench.data.disk.without = None

    assert await checkpoints.write_now(topic)

    assert bench.health.ok
    assert reopened(bench, tmp_path / "copy/t.topic").tombstoned


@pytest.mark.usefixtures("origin")
async def test_clean_stop_writes_checkpoints_of_promoted_copies(tmp_path):
    bench = Bench(tmp_path / "here")
    topic, folder = promote(bench, tmp_path)
    topic.channels["c"].commit(topic.log.next_seq - 1)

    await bench.checkpoints().write_last()

    assert reopened(bench, folder).channels["c"].backlog.lowest() == topic.log.next_seq - 1


def alive(of: str) -> list[str]:
    """The topics and channels of this topic name that are in memory, without a garbage collection."""
    found = [one for one in gc.get_objects() if isinstance(one, Topic | Channel)]
    return sorted(
        type(one).__name__ for one in found if (one.name if isinstance(one, Topic) else one.topic_name) == of
    )


@pytest.fixture
def no_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
async def test_deleted_topic_and_its_channels_are_gone_without_collection(tmp_path):
    bench = Bench(tmp_path)
    checkpoints = bench.checkpoints()
    publisher, reader = bench.connect(), bench.connect()
    reader.says(b"SUB fleeting c\nRDY 1\n")
    for number in range(4):
        publisher.says(b"PUB fleeting\n" + sized(b"%d" % number))
        await bench.rest()
        await checkpoints._round(time.monotonic())
    assert alive("fleeting") == ["Channel", "Topic"]
    bench.broker.delete_channel(bench.broker.topics["fleeting"], "c")
    publisher.says(b"PUB fleeting\n" + sized(b"more"))
    await bench.rest()
    bench.events.clear()

    await checkpoints._round(time.monotonic())
    assert alive("fleeting") == ["Topic"]

    topic = bench.broker.topics["fleeting"]
    bench.broker.delete_topic("fleeting")
    bench.data.delete(topic)
    bench.events.clear()
    del topic
    publisher.says(b"PUB another\n" + sized(b"x"))
    await bench.rest()
    await checkpoints._round(time.monotonic())
    # A publisher keeps the topic in memory for as long as its connection lives.
    assert alive("fleeting") == ["Topic"]

    publisher.connection.connection_lost(None)
    del publisher
    bench.events.clear()
    await bench.rest()
    assert alive("fleeting") == []


async def test_checkpoints_are_written_again_once_after_clock_step(tmp_path, monkeypatch):
    bench = Bench(tmp_path)
    checkpoints = bench.checkpoints()
    client = bench.connect()
    client.says(b"SUB t c\n")
    client.says(b"PUB t\n" + sized(b"m"))
    await bench.rest()
    for _ in range(4):
        await checkpoints._round(time.monotonic())

    def written():
        return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "t.topic").glob("checkpoint.*")}

    before = written()
    await checkpoints._round(time.monotonic())
    assert written() == before

    true_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: true_ns() - 3600 * 10**9)
    for _ in range(4):
        await checkpoints._round(time.monotonic())

    after = written()
    assert after != before
    await checkpoints._round(time.monotonic())
    assert written() == after


async def test_due_times_that_have_passed_are_forgotten_without_channel(tmp_path):
    bench = Bench(tmp_path)
    checkpoints = bench.checkpoints()
    bench.connect().says(b"DPUB t 1\n" + sized(b"soon") + b"DPUB t 60000\n" + sized(b"later"))
    await bench.rest()
    deferred = bench.broker.topics["t"].deferred
    await eventually(lambda: deferred.first_due_ns() < now_ns(), "the due time")

    await checkpoints._round(time.monotonic())

    assert deferred.count == 1
