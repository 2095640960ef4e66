"""The way of a turn's writes to a keeper."""

import asyncio
import socket

import pytest

from nsqcore.process.logs import Log, LogLevel
from nsqd.log.disk import Disk
from nsqd.replication.choosing import Appointed
from nsqd.replication.home import Home, HomeSettings
from nsqd.server.replication.linking import KeeperAtWork, Linking, behind
from tests.support.peers import served
from tests.support.waiting import eventually


class Says:
    """A link that has these bytes to send."""

    closing = False

    def __init__(self, out):
        self.out = out

    def jobs(self):
        return []

    def flush(self, _now_ns):
        out, self.out = self.out, []
        return out

    def end(self, _reason): ...


@pytest.mark.parametrize(
    ("size", "left"),
    [(0, [b"ab", b"", b"cde"]), (1, [b"b", b"", b"cde"]), (2, [b"cde"]), (4, [b"e"]), (5, []), (9, [])],
)
def test_what_is_left_behind_some_bytes(size, left):
    assert behind([b"ab", b"", b"cde"], size) == left


async def test_all_of_it_arrives_in_order_however_much_the_socket_takes_at_once():
    ours, theirs = socket.socketpair()
    for one in (ours, theirs):
        one.setblocking(False)
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: KeeperAtWork(None, None, plain=True), sock=ours)
    pieces = [b"%07d" % number * 100 for number in range(3000)]
    for at in range(0, len(pieces), 1500):
        connection.link = Says(pieces[at : at + 1500])
        connection.go_on()

    found = b""
    while len(found) < 700 * len(pieces):
        found += await loop.sock_recv(theirs, 1 << 20)

    assert found == b"".join(pieces)
    connection.transport.abort()
    theirs.close()


class Keeper:
    """Takes connections and says nothing; counts those that are open."""

    def __init__(self):
        self.open = self.accepted = 0

    async def serve(self, reader, _writer):
        self.accepted += 1
        self.open += 1
        await reader.read(-1)
        self.open -= 1


@pytest.fixture
async def keeper():
    keeper = Keeper()
    async with served(keeper.serve) as keeper.address:
        yield keeper


def linking_to(keeper, kind=Linking):
    home = Home(HomeSettings(), bytes(16), 1, "home:4150", again=lambda one, _above: one)
    log = Log("[test] ", LogLevel.FATAL)
    return kind(home, Appointed(1, keeper.address), log, None, Disk(), tls=None)


class Stopped(Linking):
    """Its task is cancelled just when it has connected."""

    async def _connect(self):
        connection = await super()._connect()
        self.task.cancel()
        return connection


async def ended(task):
    async with asyncio.timeout(10):
        await asyncio.wait([task])
    assert task.cancelled()


async def test_a_node_that_stops_just_when_it_has_connected_does_not_wait_for_its_keeper(keeper):
    linking = linking_to(keeper, Stopped)
    linking.task = asyncio.create_task(linking.run())

    await ended(linking.task)

    await eventually(lambda: keeper.accepted and not keeper.open, "the connection is closed")


async def test_a_node_that_stops_at_any_step_of_connecting_leaves_no_connection(keeper):
    for steps in range(60):
        task = asyncio.create_task(linking_to(keeper).run())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await ended(task)

    await eventually(lambda: keeper.accepted and not keeper.open, "all connections are closed")
