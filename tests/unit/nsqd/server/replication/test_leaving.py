"""Logs that are handed over, while their disk fails."""

import asyncio
import errno
import io
from pathlib import Path

import pytest

from nsqcore.process.logs import Log, LogLevel
from nsqd.engine import carried
from nsqd.engine.broker import Broker
from nsqd.engine.limits import Limits
from nsqd.log.ids import MessageIds
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.choosing import Candidate
from nsqd.server.replication.handing import HandingOver, HandOverProgress
from nsqd.server.replication.leaving import StoppedLogs, Surroundings, apart_home
from nsqd.storage.data_path import DataPath, StorageOptions
from nsqd.storage.topic_store import store_of
from tests.campaign.carried.departing import SiteLinking, TickLoop
from tests.support.simulated_disk import SimulatedDisk

DATA = Path("/data")
QUIET = Log("[test] ", LogLevel.FATAL)
# Nobody listens there.
TAKER = "127.0.0.1:1"
SECOND = 1_000_000_000


@pytest.fixture
def disk():
    return SimulatedDisk(DATA)


@pytest.fixture
def broker(disk):
    """A topic `t` with a message for its channel `c`."""
    data = DataPath(DATA, StorageOptions(), print, disk)
    broker = Broker(MessageIds(1), Limits(), data)
    topic = broker.topic("t", 0)
    broker.channel(topic, "c")
    topic.stage(b"m", 0)
    store_of(topic).append(topic.staged(), topic.staged_notes(), topic.log.next_seq)
    broker.commit(topic)
    broker.dirty.clear()
    return broker


@pytest.fixture
def file(disk):
    return AppointmentsFile(disk, DATA, bytes(16), print)


@pytest.fixture
async def logs(broker, disk, file):
    home = apart_home(bytes(16), 1, "me:4150", bytes, file)
    logs = StoppedLogs(broker, home, DATA, disk, file, QUIET, None)
    yield logs
    await logs.close()


async def test_a_fact_that_cannot_be_noted_ends_the_hand_over_with_the_reason(broker, disk, logs):
    topic = broker.topics["t"]
    carried.unite(broker, topic, topic.channels["c"], [(0, topic.log.next_seq)])
    disk.fail(errno.EIO, "append", "*.log", times=None)
    # A taker that cannot be reached would not end it before the test does.
    handing = HandingOver(logs, TAKER, disk, QUIET, HandOverProgress(), in_flight_s=1.0, reach_s=1e9)

    async with asyncio.timeout(10):
        with pytest.raises(OSError, match=r"\[Errno 5\]"):
            await handing.run()


async def test_a_taker_that_never_answered_is_forgotten_and_a_keeper_whose_answer_was_not_noted_is_not(
    logs, file
):
    # The home was killed before it noted which node answered there.
    file.appointments.appoint(Candidate("keeper:4150"))

    for taker in (TAKER, "keeper:4150"):
        logs.appoint(taker)
        logs.dismiss()

    assert logs.keepers() == ["keeper:4150"]
    file.load()
    assert logs.keepers() == ["keeper:4150"]


def test_a_checkpoint_that_cannot_be_written_is_tried_once_a_second_and_that_is_logged_once(broker, disk):
    now = SECOND
    loop = TickLoop(lambda: now)
    said = io.StringIO()
    file = AppointmentsFile(disk, DATA, bytes(16), print)
    home = apart_home(bytes(16), 1, "me:4150", bytes, file)
    around = Surroundings(SiteLinking, lambda: now)
    log = Log("[test] ", LogLevel.WARN, said)
    logs = StoppedLogs(broker, home, DATA, disk, file, log, None, around)
    home.want_checkpoint(store_of(broker.topics["t"]))
    loop.call_soon(logs.appoint, TAKER)
    fault = disk.fail(errno.ENOSPC, path="*checkpoint*", times=None)
    for _ in range(50):
        loop.go()
        now += SECOND // 20

    assert disk.failed == 3
    assert said.getvalue().count("cannot write a checkpoint") == 1
    disk.faults.remove(fault)
    now += SECOND
    loop.go()
    assert home.wants_checkpoint == {}
    loop.call_soon(logs.leave)
    loop.go()
    loop.close()
