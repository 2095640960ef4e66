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


def node(name, *, keeps=True, zone=""):
    return NodeInfo(
        name, f"host-{name}", 4150, 4151, "1.3.0", data_path=name * 32, keeps=keeps, topology_zone=zone
    )


class Site:
    def __init__(self, path, *named, count=1, nodes=(), disk=None):
        self.nodes = list(nodes)
        self.asked = 0
        self.told = []
        self.said = io.StringIO()
        self.file = AppointmentsFile(disk or Disk(), path, bytes(16), print)
        self.file.load()
        log = Log("[test] ", LogLevel.WARN, self.said)
        self.keepers = KeeperChoice(
            ME, count, self.file, MINUTE, log, named=named, nodes=self.ask, appointed=self.told.append
        )

    async def ask(self):
        self.asked += 1
        return self.nodes


def addresses(found):
    return [one.address for one in found]


def test_an_nsqd_that_says_nothing_of_it_keeps_nothing():
    found = candidates_of([node("a"), node("b", keeps=False), NodeInfo("c", "c", 1, 2, "1.3.0", keeps=True)])

    assert addresses(found) == ["a:4150"]


@pytest.mark.parametrize(("named", "count"), [((), 1), (("a:4150",), 2)])
async def test_a_node_that_only_nsqlookupd_names_gets_nothing(tmp_path, named, count):
    site = Site(tmp_path, *named, count=count, nodes=[node("s", zone="z2")])
    site.keepers.begin()

    for _ in range(3):
        await site.keepers.look()

    assert [addresses(told) for told in site.told] == [list(named)]
    assert (
        site.said.getvalue().count(
            f"{len(named)} of {count} keepers are known: set --keepers to the addresses of {count} other nsqd"
        )
        == 1
    )


async def test_a_keeper_that_is_named_no_longer_is_dismissed_at_the_start(tmp_path):
    await Site(tmp_path, "a:4150").keepers.look()
    again = Site(tmp_path)

    again.keepers.begin()

    assert again.file.appointments.current == []
    assert addresses(again.file.appointments.former) == ["a:4150"]


async def test_of_the_named_ones_those_that_nsqlookupd_lists_are_chosen(tmp_path):
    site = Site(tmp_path, "a:4150", "b:4150", "c:4150", nodes=[node("b"), node("s")])
    site.keepers.begin()
    assert site.told == []
    await site.keepers.look()

    assert [addresses(told) for told in site.told] == [["b:4150"]]


@pytest.mark.parametrize("far", ["a", "b"])
async def test_of_the_named_ones_one_in_another_zone_is_chosen(tmp_path, far):
    site = Site(tmp_path, "a:4150", "b:4150")
    site.nodes = [node(name, zone="z2" if name == far else "z1") for name in ("a", "b")]

    await site.keepers.look()

    assert addresses(site.told[0]) == [f"{far}:4150"]


async def test_named_ones_are_chosen_at_the_second_look_if_nsqlookupd_lists_none(tmp_path):
    site = Site(tmp_path, "a:4150", "b:4150")

    await site.keepers.look()
    assert site.told == []
    await site.keepers.look()

    assert len(site.told[0]) == 1


async def test_a_node_is_no_keeper_of_its_own(tmp_path):
    site = Site(tmp_path, ME.address, "a:4150", "a:4150")
    site.keepers.begin()

    await site.keepers.look()

    assert addresses(site.told[0]) == ["a:4150"]


async def test_keepers_are_appointed_once_and_noted_before_anybody_hears(tmp_path):
    site = Site(tmp_path, "a:4150")
    await site.keepers.look()
    await site.keepers.look()

    assert [addresses(told) for told in site.told] == [["a:4150"]]
    assert addresses(Site(tmp_path).file.appointments.current) == ["a:4150"]


async def test_after_a_start_the_same_ones_are_asked_though_nsqlookupd_knows_nobody_yet(tmp_path):
    site = Site(tmp_path, "a:4150", "b:4150", nodes=[node("b")])
    await site.keepers.look()
    again = Site(tmp_path, "a:4150", "b:4150")
    again.keepers.begin()

    assert addresses(again.file.appointments.current) == ["b:4150"]
    for _ in range(2):
        await again.keepers.look()
    assert [addresses(told) for told in again.told] == [["b:4150"]]


async def test_all_named_ones_are_taken_whatever_nsqlookupd_says(tmp_path):
    site = Site(tmp_path, "x:1", "y:2", count=2, nodes=[node("a")])

    await site.keepers.look()

    assert sorted(addresses(site.told[0])) == ["x:1", "y:2"]
    assert not site.asked


def test_named_keepers_without_a_choice_are_appointed_before_anybody_is_served(tmp_path):
    site = Site(tmp_path, "x:1", "y:2", count=2)

    site.keepers.begin()

    assert sorted(addresses(site.file.appointments.current)) == ["x:1", "y:2"]
    assert len(Site(tmp_path).file.appointments.current) == 2


async def test_one_that_refuses_is_replaced_as_soon_as_that_is_known(tmp_path):
    site = Site(tmp_path, "a:4150", "b:4150", nodes=[node("a"), node("b")])
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
    site = Site(DATA, "a:4150", disk=disk)
    disk.fail(errno.ENOSPC, "rename", "*appointments.json*", times=2)

    for _ in range(2):
        await site.keepers.look()
        assert site.told == []
    assert site.said.getvalue().count("failed to note the keepers") == 1
    await site.keepers.look()

    assert [addresses(told) for told in site.told] == [["a:4150"]]
    assert Site(DATA, disk=disk).file.appointments.current == site.told[0]
