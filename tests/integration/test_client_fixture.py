"""The fixture comes with the package, without an import."""

import socket

from nsqclient.sync import Producer
from nsqclient.wire import commands


def test_an_nsqd_in_memory_is_there_for_each_test(memory_nsqd):
    with Producer(memory_nsqd.address) as producer:
        producer.publish("t", b"x")

    assert memory_nsqd.published("t") == [b"x"]


def test_what_a_client_has_sent_is_seen_at_once(memory_nsqd):
    """Closing a client does not wait until nsqd has read its last answers."""
    host, _, port = memory_nsqd.address.rpartition(":")
    for number in range(200):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"  V2" + commands.pub("t", b"%d" % number))
        assert len(memory_nsqd.published("t")) == number + 1
