"""The way of a turn's writes to a keeper."""

import asyncio
import socket

import pytest

from nsqd.server.replication.linking import KeeperAtWork, behind


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
