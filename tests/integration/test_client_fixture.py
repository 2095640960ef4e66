"""The fixture comes with the package, without an import."""

import asyncio
import gc
import socket
import warnings

from nsqclient import _threads as threads
from nsqclient.sync import Producer
from nsqclient.testing import MemoryNsqd
from nsqclient.wire import commands


def test_fixture_gives_empty_nsqd_to_each_test(memory_nsqd):
    with Producer(memory_nsqd.address) as producer:
        producer.publish("t", b"x")

    assert memory_nsqd.published("t") == [b"x"]


def test_sent_messages_are_visible_immediately(memory_nsqd):
    """Closing a client does not wait until nsqd has read its last answers."""
    host, _, port = memory_nsqd.address.rpartition(":")
    for number in range(200):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"  V2" + commands.pub("t", b"%d" % number))
        assert len(memory_nsqd.published("t")) == number + 1


def test_client_that_connects_while_it_ends_is_disconnected(monkeypatch):
    # uvloop does not tell of a connection that is left open.
    monkeypatch.setattr(threads, "_new_event_loop", asyncio.new_event_loop)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(30):
            with MemoryNsqd() as nsqd:
                host, _, port = nsqd.address.rpartition(":")
                client = socket.create_connection((host, int(port)), timeout=10)
            with client:
                assert not client.recv(1)
            del nsqd
        gc.collect()

    assert [str(one.message) for one in caught] == []
