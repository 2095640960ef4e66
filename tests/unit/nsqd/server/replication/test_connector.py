"""The connections that a node makes: one to each node, whether it is known by its address or its identity."""

import asyncio
import io

from bench.ports import free_port
from nsqcore.process.logs import Log, LogLevel
from nsqd.server.replication.connection import Connections
from nsqd.server.replication.connector import Connectors
from tests.support.waiting import eventually

PEER = b"p" * 16


class Link:
    """A link that is up as soon as the peer has sent anything."""

    def __init__(self, came_up):
        self.peer, self.reason, self.refused, self.is_closed = b"", "", 0, False
        self.came_up = came_up

    @property
    def is_up(self):
        return bool(self.peer) and not self.is_closed

    def receive(self, _data, _now_ns):
        self.peer = PEER
        self.came_up.set()

    def flush(self, _now_ns):
        return []

    def end(self, reason):
        self.is_closed, self.reason = True, self.reason or reason


async def greet(reader, writer):
    writer.write(b"hello")
    await reader.read()
    writer.close()
    await writer.wait_closed()


async def test_named_node_that_answers_late_gets_no_second_connection():
    port = free_port()
    address = f"127.0.0.1:{port}"
    log = Log("", LogLevel.FATAL, io.StringIO())
    came_up = asyncio.Event()
    connections = Connections(log, lambda: None, Link, tls=None, tls_required=False, certificate_hash=bytes)
    connectors = Connectors(connections, log, lambda *_: Link(came_up), None, tls=None)
    connectors.keep({}, [address])
    (named,) = connectors.all
    await eventually(lambda: named.has_failed, "nothing listens there yet")
    async with await asyncio.start_server(greet, "127.0.0.1", port):
        await came_up.wait()

        # It is chosen as a replica in the same moment.
        connectors.keep({PEER: address}, [address])

        assert connectors.all == [named]
        assert named.identity == PEER
        tasks = connectors.tasks
        connectors.keep({}, [])
        await asyncio.wait(tasks)
