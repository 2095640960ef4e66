"""Servers of tests end without leaving a connection open, however late somebody connected."""

import asyncio
import gc
import socket
import warnings

import pytest
from aiohttp import web

from tests.support.peers import http_served, served


def connected(address):
    host, port = address
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex((host, int(port)))
    return client


def left_open(work):
    """The warnings about what the loop left open, when it ends right after *work*."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        asyncio.run(work)
        gc.collect()
    return [str(one.message) for one in caught]


async def reads(reader, _writer):
    await reader.read()


@pytest.mark.parametrize("turns", range(6))
def test_a_client_that_connects_while_a_peer_ends_is_disconnected(turns):
    clients = []

    async def work():
        async with served(reads) as address:
            clients.append(connected(address.split(":")))
            for _ in range(turns):
                await asyncio.sleep(0)

    found = left_open(work())
    clients[0].close()

    assert found == []


@pytest.mark.parametrize("turns", range(6))
def test_a_client_that_connects_while_an_http_server_ends_is_disconnected(turns):
    clients = []

    async def answer(_request):
        return web.Response()

    async def work():
        async with http_served(answer) as address:
            clients.append(connected(address))
            for _ in range(turns):
                await asyncio.sleep(0)

    found = left_open(work())
    clients[0].close()

    assert found == []
