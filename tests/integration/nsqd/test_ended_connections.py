"""The objects and the received bytes of a connection go when it ends, without a collection."""

import asyncio
import gc
import os
import socket
from collections import Counter

import pytest
import uvloop

from tests.support.certificates import Authority
from tests.support.http_doors import Doors
from tests.support.upgrades import upgrade
from tests.support.waiting import eventually
from tests.support.wire import Wire

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
