"""The nsqd to which this node is handed over, beside the keepers that it has."""

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from nsqcore.cluster.models import NodeInfo
from nsqcore.process.logs import Log, LogLevel
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.choosing import Candidate
from nsqd.replication.home import HomeSettings
from nsqd.server.replication.our_keepers import OurKeepers
from nsqd.server.replication.wanted import ReplicationOptions
from tests.support.simulated_disk import SimulatedDisk

DATA = Path("/data")
# Nobody listens there.
TAKER = "127.0.0.1:1"


STRANGER = NodeInfo("s", "s", 4150, 4151, "1.3.0", data_path="s" * 32, keeps=True)


async def listed():
    """The nodes that nsqlookupd lists."""
    return [STRANGER]


@pytest.fixture
def disk():
    return SimulatedDisk(DATA)


def of_node(disk, *named):
    return OurKeepers(
        ReplicationOptions(HomeSettings(replicas=1), 1, "me:4150", named),
        Candidate("me:4150", "00"),
        AppointmentsFile(disk, DATA, bytes(16), print),
        disk,
        Log("[test] ", LogLevel.FATAL),
        tls=None,
        nodes=listed,
    )


@pytest.fixture
async def ours(disk):
    """A node that looks for a keeper, and knows none."""
    ours = of_node(disk)
    ours.open(SimpleNamespace(say_who_keeps=lambda: None))
    ours.begin()
    ours.choose()
    yield ours
    await ours.close()


async def test_a_taker_that_cannot_be_noted_changes_nothing_and_may_be_tried_again(ours, disk):
    disk.fail(errno.ENOSPC, "rename", "*appointments.json*", times=2)

    for _ in range(2):
        with pytest.raises(OSError, match=r"\[Errno 28\]"):
            ours.take_on(TAKER)
        assert ours._choosing is not None
        assert ours.appointments.current == []
    linking = ours.take_on(TAKER)

    assert [linking.appointed] == ours.appointments.current
    assert ours._choosing is None


async def test_a_node_that_stays_looks_for_keepers_again(ours):
    ours.take_on(TAKER)

    ours.dismiss_taker()

    assert ours._choosing is not None


async def test_a_node_that_only_nsqlookupd_names_takes_nothing_over(disk):
    assert await of_node(disk).takers() == []
    assert await of_node(disk, "a:4150", "s:4150").takers() == ["s:4150", "a:4150"]
