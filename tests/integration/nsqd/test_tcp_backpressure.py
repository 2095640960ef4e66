"""Clients that do not read: they are held back, or cut off, and cost the others nothing."""

import select
import socket

import pytest

from tests.support.waiting import wait_until
from tests.support.wire import MAGIC_V2, NO_ID, Wire, identify, mpub, pub, sub

PATIENCE_S = 0.5
OK = b"\0\0\0\x06\0\0\0\0OK"
# How many bytes of commands a test tries to send. Fewer are taken, because the kernel and nsqd hold only a
# limited amount of unread replies.
ENOUGH = 40 << 20


class Deaf(Wire):
    """A client with a small receive buffer that it never reads."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), magic=b"")
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        self.send(MAGIC_V2)

    def shout(self, data: bytes, at_most: int) -> int:
        """Send *data* again and again until no more is taken; return how many bytes were taken."""
        self.socket.setblocking(False)
        sent = 0
        while sent < at_most and select.select([], [self.socket], [], PATIENCE_S)[1]:
            try:
                sent += self.socket.send(data[sent % len(data) :])
            except ConnectionError:
                break
        return sent


@pytest.fixture
def deaf(nsqd):
    with Deaf(nsqd.tcp_port) as wire:
        yield wire


def test_producer_that_reads_no_replies_is_read_no_further(deaf, connect, topic):
    publish = pub(f"{topic}#ephemeral", b"m")
    sent = deaf.shout(publish * 10_000, ENOUGH)
    assert sent < ENOUGH
    connect().publish(topic, b"others go on")

    # It gets all its replies when it reads.
    deaf.socket.settimeout(10)
    replies = b""
    while len(replies) < sent // len(publish) * len(OK):
        replies += deaf.socket.recv(1 << 20)
    assert replies == OK * (sent // len(publish))


def test_consumer_that_reads_no_replies_is_cut_off(deaf, connect, topic):
    deaf.send(sub(topic, "ch"))
    assert deaf.shout(b"FIN %b\n" % NO_ID * 10_000, ENOUGH) < ENOUGH
    connect().publish(topic, b"others continue")


def test_consumer_that_does_not_read_gets_no_more_than_fits(nsqd, deaf, connect, topic, stats):
    deaf.send(sub(topic, "ch"), b"RDY 2500\n")
    wait_until(lambda: stats_or_none(nsqd, topic), "it is subscribed")
    producer = connect()
    body = b"m" * 100_000
    for _ in range(10):
        producer.send(mpub(topic, *[body] * 20))
        producer.ok()
    channel = stats(topic, "ch")
    assert channel["depth"] + channel["in_flight_count"] == 200
    assert channel["depth"] > 0  # 20 MB: not all of it waits in nsqd's memory for one client
    deaf.close()
    wait_until(lambda: stats(topic, "ch")["client_count"] == 0, "it is gone")
    healthy = connect()
    healthy.subscribe(topic, ready=300)
    assert len(healthy.messages(200)) == 200


@pytest.mark.slow
def test_client_that_neither_reads_nor_speaks_is_cut_off(nsqd, deaf, connect, topic, stats):
    deaf.send(identify(heartbeat_interval=1000), sub(topic, "ch"), b"RDY 2500\n")
    wait_until(lambda: stats_or_none(nsqd, topic), "it is subscribed")
    connect().send(mpub(topic, *[b"m" * 100_000] * 50))
    wait_until(lambda: stats(topic, "ch")["client_count"] == 0, "it is cut off")
    assert stats(topic, "ch")["depth"] == 50


def stats_or_none(nsqd, topic):
    found = nsqd.get(f"/stats?format=json&topic={topic}")["topics"]
    return found and found[0]["channels"] and found[0]["channels"][0]["clients"]
