"""The memory of nsqd, measured from outside."""

import asyncio
import gc
import os
import socket
import tracemalloc
from collections import Counter

import pytest
import uvloop

from nsqd.replication.framing import FrameReader
from tests.support.certificates import Authority
from tests.support.engine import Node
from tests.support.http_doors import Doors
from tests.support.memory_transport import MemoryTransport
from tests.support.upgrades import upgrade
from tests.support.waiting import eventually, wait_until
from tests.support.wire import Wire, mpub, pub

MIB = 1 << 20


@pytest.fixture
def nsqd(cluster):
    """A separate nsqd, because all tests use the memory of the shared one."""
    return cluster.nsqd()


def resident(nsqd):
    return nsqd.get("/stats?format=json&topic=none")["memory"]["heap_in_use_bytes"]


def test_deleted_topics_leave_memory(nsqd, connect):
    """Data for the next checkpoint once kept the channels in memory, and they the log: 8 MiB a topic."""

    def fill_and_delete(name):
        """Fill topics and delete them; return the memory in use while they exist."""
        topics = [f"{name}{n}" for n in range(8)]
        # Each producer stays connected, and refers to its topic.
        producers = [connect(nsqd) for _ in topics]
        for topic in topics:
            nsqd.create(topic, "c")
        for number in range(3):
            for producer, topic in zip(producers, topics, strict=True):
                producer.ask(mpub(topic, *[b"x" * MIB] * 4))
                producer.ask(pub(topic, b"x"))
            if number < 2:
                files = [nsqd.folder / f"{topic}.topic" / f"checkpoint.{number}" for topic in topics]
                wait_until(lambda files=files: all(file.exists() for file in files), f"checkpoint {number}")
        most = resident(nsqd)
        for topic in topics:
            nsqd.post(f"/topic/delete?topic={topic}")
        return most

    # Free memory need not be given back to the system, but it must be used again.
    first, *later = [fill_and_delete(name) for name in ("one", "two", "three")]

    assert max(later) < first + 8 * 8 * MIB


# --- a long body that arrives in tiny reads takes memory in proportion to its size


SIZE = 60_000
HEAD = b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"


@pytest.fixture
async def doors(tmp_path):
    async with Doors(tmp_path) as doors:
        yield doors


def session(_doors):
    node = Node()
    found, _ = node.session()
    found.receive(b"  V2PUB t\n" + (1_000_000).to_bytes(4), node.now_ns)
    return lambda data: found.receive(data, node.now_ns)


def between_nodes(_doors):
    reader = FrameReader()

    def feed(data):
        assert list(reader.feed(data)) == []

    feed((1_000_000).to_bytes(4, "little"))
    return feed


def http(make):
    transport = MemoryTransport()
    transport.connect(make())
    transport.say(HEAD)
    return transport.say


RECEIVERS = {
    "session": session,
    "between nodes": between_nodes,
    "plain publish": lambda doors: http(doors.front),
    "aiohttp": lambda doors: http(doors.alone),
}


@pytest.mark.parametrize("kind", RECEIVERS)
async def test_body_in_tiny_reads_takes_little_more_memory_than_its_size(doors, kind):
    receive = RECEIVERS[kind](doors)
    await asyncio.sleep(0.05)
    tracemalloc.start()
    try:
        for number in range(SIZE // 2):
            receive(number.to_bytes(2, "big"))
            if not number % 50:
                await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert SIZE <= used < 1.5 * SIZE


# --- the objects and the received bytes of a connection go when it ends, without a collection


HALF = os.urandom(300_000)
CHUNKED = b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nF4240\r\n" + HALF
LONG = b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + HALF


def half_a_publish(nsqd, context, **wishes):
    wire = Wire(("127.0.0.1", nsqd.tcp.port))
    upgrade(wire, tls=context if wishes.pop("tls", False) else None, **wishes)
    wire.send(b"PUB t\n" + (1_000_000).to_bytes(4) + HALF)
    return wire.socket


def over_http(nsqd, _context, request):
    sock = socket.create_connection(("127.0.0.1", nsqd.http.port), 20)
    sock.sendall(request)
    return sock


def over_https(nsqd, context, request):
    sock = socket.create_connection(("127.0.0.1", nsqd.https.port), 20)
    secure = context.wrap_socket(sock, server_hostname="127.0.0.1")
    secure.sendall(request)
    return secure


CLIENTS = {
    "plain": half_a_publish,
    "TLS": lambda *to: half_a_publish(*to, tls=True),
    "deflate": lambda *to: half_a_publish(*to, compression="deflate"),
    "snappy": lambda *to: half_a_publish(*to, compression="snappy"),
    "TLS and deflate": lambda *to: half_a_publish(*to, tls=True, compression="deflate"),
    "HTTP": lambda *to: over_http(*to, LONG),
    "chunked HTTP": lambda *to: over_http(*to, CHUNKED),
    "no HTTP": lambda *to: over_http(*to, b"GARBAGE \x00\r\n\r\n"),
    "HTTPS": lambda *to: over_https(*to, LONG),
    "chunked HTTPS": lambda *to: over_https(*to, CHUNKED),
}


@pytest.mark.parametrize("kind", CLIENTS)
def test_ended_connection_leaves_no_object(tmp_path, kind):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        left = runner.run(objects_of_ended_connections(tmp_path, CLIENTS[kind]))

    assert not left


async def objects_of_ended_connections(folder, connect):
    """The objects of the third connection that are left; the first ones fill caches."""
    authority = Authority(folder / "tls")
    tls = {"tls_cert": str(authority.certificate), "tls_key": str(authority.key)}
    async with Doors(folder / "data", https_address="127.0.0.1:0", **tls) as doors:
        nsqd = doors.nsqd
        for _ in range(2):
            await one_connection(nsqd, connect, authority.client())
        gc.collect()
        gc.disable()
        try:
            before = objects()
            await one_connection(nsqd, connect, authority.client())
            # A timer of the node may be under way at the moment of the look.
            for _ in range(20):
                if not (left := objects() - before):
                    break
                await asyncio.sleep(0.05)
            return left
        finally:
            gc.enable()


async def one_connection(nsqd, connect, context):
    seen = len(nsqd.clients.connections)
    sock = await asyncio.to_thread(connect, nsqd, context)
    await asyncio.sleep(0.1)
    sock.close()
    await eventually(lambda: len(nsqd.clients.connections) == seen, "the end of the connection")
    await asyncio.sleep(0.1)


def objects():
    """Our objects and those of asyncio and aiohttp, by type."""
    return Counter(
        f"{type(one).__module__}.{type(one).__qualname__}"
        for one in gc.get_objects()
        if type(one).__module__.startswith(("nsq", "aiohttp", "uvloop"))
    )
