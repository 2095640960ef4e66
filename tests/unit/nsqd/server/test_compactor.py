"""Rounds of checkpoints on real files: the removed files, and the skipped topics."""

import errno
import io
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from nsqcore.process.logs import Log, LogLevel
from nsqd.engine.broker import Broker
from nsqd.engine.limits import Limits
from nsqd.log.frames import Block
from nsqd.log.ids import MessageIds
from nsqd.server.checkpointer import Checkpointer
from nsqd.server.compactor import Rate
from nsqd.server.health import Health
from nsqd.storage.data_path import DataPath, StorageOptions
from nsqd.storage.metadata import Metadata
from nsqd.storage.topic_log import store_of
from tests.support.disks import FaultyDisk
from tests.support.engine import SECOND

SEGMENT = 2000
BODY = b"x" * 400


class House:
    """A data path with a topic "t" that has a channel "c", and the rounds of its checkpoints."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disk = FaultyDisk()
        self.now_ns = 1_700_000_000 * SECOND
        self.said = io.StringIO()
        self.syncs = True
        self.start()

    def start(self) -> None:
        options = StorageOptions(max_segment_bytes=SEGMENT)
        self.data = DataPath(self.path, options, pytest.fail, self.disk)
        self.broker = Broker(MessageIds(1), Limits(), self.data.create_log)
        self.data.restore(self.broker, Metadata(), self.now_ns)
        self.log = Log("", LogLevel.WARN, self.said)
        self.checkpoints = Checkpointer(self.broker, self.data, Health(), self.log, lambda *_: None)
        self.topic = self.broker.topic("t", self.now_ns)
        self.channel = self.broker.channel(self.topic, "c")
        self.store = store_of(self.topic)
        assert self.store is not None
        self.turn()

    def turn(self) -> None:
        blocks, notes = self.topic.staged(), self.topic.staged_notes()
        if blocks or notes:
            self.store.appender.append(blocks, notes, self.topic.log.next_seq)
            self.broker.commit(self.topic)
        if self.syncs:
            self.sync()

    def sync(self) -> None:
        job = self.store.appender.begin_sync()
        if job is not None:
            job.run(self.data.disk)
            self.store.appender.end_sync(job, None)

    def publish(self, count: int) -> int:
        """Publish messages one by one; returns the sequence of the first."""
        first = self.topic.log.next_seq
        for _ in range(count):
            self.topic.stage(BODY, self.now_ns)
            self.turn()
        return first

    def finish(self, start: int, end: int) -> None:
        """Finish these messages, so that they are no longer pending in the channel."""
        assert self.channel.remove([(start, end)]) == [(start, end)]
        self.topic.changed = True

    async def rounds(self, count: int) -> None:
        for _ in range(count):
            await self.checkpoints._round(time.monotonic())
            while self.checkpoints._compactor._workers:
                await next(iter(self.checkpoints._compactor._workers))

    def logs(self) -> list[str]:
        return sorted(path.name for path in self.store.segments.folder.glob("*.log"))

    async def close(self) -> None:
        await self.checkpoints._compactor.close()
        self.store.appender.close()


@pytest.fixture
async def house(tmp_path):
    house = House(tmp_path)
    yield house
    await house.close()


async def test_files_without_pending_messages_are_removed(house):
    first = house.publish(40)
    house.finish(first + 1, first + 40)

    await house.rounds(5)

    assert len(house.logs()) <= 2
    assert sum(path.stat().st_size for path in house.store.segments.folder.glob("*.log")) < 2 * SEGMENT
    assert len(house.store.segments.read(first)) == 1
    assert house.store.segments.losses(house.topic.log.log_start) == []


async def test_pending_message_in_middle_keeps_no_other_file(house):
    first = house.publish(40)
    house.finish(first, first + 20)
    house.finish(first + 21, first + 40)

    await house.rounds(5)

    assert len(house.logs()) <= 2
    assert house.store.segments.first_seq > first
    assert len(house.store.segments.read(first + 20)) == 1


async def test_idle_topic_costs_no_disk_call(house):
    first = house.publish(40)
    house.finish(first + 1, first + 40)
    await house.rounds(8)
    assert not house.topic.changed
    calls = len(house.disk.calls)

    await house.rounds(3)

    assert len(house.disk.calls) == calls


async def test_files_synced_late_are_removed_then(house):
    house.syncs = False
    first = house.publish(40)
    house.finish(first + 1, first + 40)
    await house.rounds(8)
    assert len(house.logs()) > 5

    house.sync()
    await house.rounds(5)

    assert len(house.logs()) <= 2


async def test_idle_topic_is_looked_at_after_start(house, tmp_path):
    first = house.publish(40)
    house.finish(first + 1, first + 40)
    await house.checkpoints.write_last()
    await house.close()
    house.start()

    await house.rounds(5)

    assert len(house.logs()) <= 3


async def test_failed_removal_is_logged_once_and_retried(house):
    first = house.publish(40)
    house.finish(first + 1, first + 40)
    house.disk.faults["remove"] = errno.EPERM
    await house.rounds(4)
    del house.disk.faults["remove"]
    assert len(house.said.getvalue().splitlines()) == 1

    house.checkpoints._compactor._restless = dict.fromkeys(house.checkpoints._compactor._restless, 0.0)
    await house.rounds(5)

    assert len(house.logs()) <= 2


async def test_deleted_topic_is_forgotten(house):
    house.publish(10)
    await house.rounds(1)
    house.broker.delete_topic("t")

    await house.rounds(1)

    assert not house.checkpoints._compactor._restless


async def test_compaction_that_runs_when_all_is_closed_comes_to_nothing(house):
    first = house.publish(40)
    house.finish(first + 1, first + 40)
    await house.checkpoints._round(time.monotonic())

    await house.checkpoints._compactor.close()

    assert isinstance(house.store.segments.read(first), Block)
    assert not list(house.store.segments.folder.glob("*.new"))


# --- pace


@pytest.fixture
def clocks(monkeypatch):
    """The clocks that a rate reads, in seconds; they stand still unless a test moves them."""
    clocks = {"monotonic": 50.0, "thread_time": 5.0, "process_time": 20.0}
    for clock in list(clocks):
        monkeypatch.setattr(time, clock, partial(clocks.get, clock))
    return clocks


def waits_of(rate, monkeypatch):
    """The list of the waits, in seconds, that the rate asks for from now on; nothing really waits."""
    waited = []
    monkeypatch.setattr(rate._ended, "wait", waited.append)
    return waited


@pytest.mark.usefixtures("clocks")
def test_seconds_worth_is_spent_without_waiting_and_more_is_waited_for(monkeypatch):
    rate = Rate(1000)
    waited = waits_of(rate, monkeypatch)

    rate.spend(1000)
    assert waited == []
    rate.spend(500)
    rate.spend(500)

    assert waited == [0.5, 1.0]


@pytest.mark.parametrize(("others", "rest"), [(0.05, []), (0.5, [pytest.approx(0.3)])])
def test_thread_that_has_worked_rests_when_others_want_processor(monkeypatch, clocks, others, rest):
    rate = Rate(1 << 30)
    waited = waits_of(rate, monkeypatch)
    for name, seconds in (("monotonic", 1.0), ("thread_time", 0.1), ("process_time", 0.1 + others)):
        clocks[name] += seconds

    rate.spend(0)

    assert waited == rest


def test_thread_does_not_rest_for_what_went_before_its_first_work(monkeypatch, clocks):
    rate = Rate(1 << 30)
    waited = waits_of(rate, monkeypatch)
    clocks.update(thread_time=9.0, process_time=900.0)

    in_thread = threading.Thread(target=rate.spend, args=(0,))
    in_thread.start()
    in_thread.join()

    assert waited == []


def test_rate_ends_all_waits():
    rate = Rate(1)
    rate.end()
    rate.spend(1 << 40)
