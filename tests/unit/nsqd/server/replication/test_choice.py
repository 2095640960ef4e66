import asyncio
import errno
import io
from pathlib import Path

import pytest

from nsqcore.cluster.models import NodeInfo
from nsqcore.process.logs import Log, LogLevel
from nsqd.log.disk import Disk
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.choosing import Candidate
from nsqd.server.replication.choice import KeeperChoice, candidates_of
from tests.support.simulated_disk import SimulatedDisk
from tests.support.waiting import eventually

ME = Candidate("me:4150", "00", "z1", "h1")
MINUTE = 60_000_000_000
DATA = Path("/data")


def node(name, *, accepts=True, identity=None):
    return NodeInfo(
        name,
        f"host-{name}",
        4150,
        4151,
        "1.3.0",
        identity=identity or name * 32,
        accepts_replicas=accepts,
    )


class Site:
    def __init__(self, path, *, count=1, fixed=(), nodes=(), disk=None):
        self.nodes = list(nodes)
        self.told = []
        self.said = io.StringIO()
        self.file = AppointmentsFile(disk or Disk(), path, bytes(16), print)
        self.file.load()
        log = Log("[test] ", LogLevel.ERROR, self.said)
        self.keepers = KeeperChoice(
            ME, count, self.file, MINUTE, log, fixed=fixed, nodes=self.ask, appointed=self.told.append
        )

    async def ask(self):
        return self.nodes


def addresses(found):
    return [one.address for one in found]


def test_an_nsqd_that_says_nothing_of_it_keeps_nothing():
    found = candidates_of(
        [node("a"), node("b", accepts=False), NodeInfo("c", "c", 1, 2, "1.3.0", accepts_replicas=True)]
    )

    assert addresses(found) == ["a:4150"]


async def test_keepers_are_appointed_once_and_noted_before_anybody_hears(tmp_path):
    site = Site(tmp_path, nodes=[node("a")])
    await site.keepers.look()
    await site.keepers.look()

    assert [addresses(told) for told in site.told] == [["a:4150"]]
    assert addresses(Site(tmp_path).file.appointments.current) == ["a:4150"]


async def test_after_a_start_the_same_ones_are_asked_though_nsqlookupd_knows_nobody_yet(tmp_path):
    site = Site(tmp_path, nodes=[node("a")])
    await site.keepers.look()
    again = Site(tmp_path)

    await again.keepers.look()

    assert [addresses(told) for told in again.told] == [["a:4150"]]


async def test_fixed_keepers_are_taken_whatever_nsqlookupd_says(tmp_path):
    site = Site(tmp_path, count=2, fixed=["x:1", "y:2"], nodes=[node("a")])

    await site.keepers.look()

    assert sorted(addresses(site.told[0])) == ["x:1", "y:2"]


def test_fixed_keepers_are_appointed_before_anybody_is_served(tmp_path):
    site = Site(tmp_path, count=2, fixed=["x:1", "y:2"])

    site.keepers.begin()

    assert sorted(addresses(site.file.appointments.current)) == ["x:1", "y:2"]
    assert len(Site(tmp_path).file.appointments.current) == 2


async def test_one_that_refuses_is_replaced_as_soon_as_that_is_known(tmp_path):
    site = Site(tmp_path, nodes=[node("a"), node("b")])
    task = asyncio.create_task(site.keepers.run())
    await eventually(lambda: site.told, "a keeper is appointed")
    (first,) = site.told[0]

    site.keepers.patience.refused(first.address, 0)
    site.keepers.look_again()
    await eventually(lambda: len(site.told) == 2, "it is replaced")
    task.cancel()

    assert addresses(site.told[1]) != [first.address]
    assert addresses(site.file.appointments.former) == [first.address]


async def test_what_cannot_be_noted_is_told_to_nobody_until_it_is_noted():
    disk = SimulatedDisk(DATA)
    site = Site(DATA, nodes=[node("a")], disk=disk)
    disk.fail(errno.ENOSPC, "rename", "*appointments.json*", times=2)

    for _ in range(2):
        await site.keepers.look()
        assert site.told == []
    assert site.said.getvalue().count("failed to note the keepers") == 1
    await site.keepers.look()

    assert [addresses(told) for told in site.told] == [["a:4150"]]
    assert Site(DATA, disk=disk).file.appointments.current == site.told[0]


@pytest.mark.parametrize("count", [1, 3])
async def test_with_nobody_to_ask_nobody_is_appointed(tmp_path, count):
    site = Site(tmp_path, count=count)

    await site.keepers.look()

    assert site.told == [[]]
