"""statsd: the metrics that a collector receives from a real nsqd."""

import socket

import pytest

from tests.support import beside
from tests.support.wire import mpub

MEMORY = (
    "heap_objects",
    "heap_idle_bytes",
    "heap_in_use_bytes",
    "heap_released_bytes",
    "gc_pause_usec_100",
    "gc_pause_usec_99",
    "gc_pause_usec_95",
    "next_gc_bytes",
)


@pytest.fixture
def collector():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.settimeout(10)
        yield listening


def test_collector_gets_every_figure_by_originals_name(cluster, connect, collector):
    port = collector.getsockname()[1]
    nsqd = cluster.nsqd(f"--statsd-address=127.0.0.1:{port}", "--statsd-interval=1001ms")
    wire = connect(nsqd)
    wire.subscribe("t", ready=2)
    assert connect(nsqd).ask(mpub("t", b"one", b"two", b"three")) == b"OK"
    wire.messages(2)
    prefix = f"nsq.127_0_0_1_{nsqd.http_port}."

    lines = []
    first, last = f"{prefix}topic.t.message_count:3|c", f"{prefix}mem.gc_runs:"
    while first not in lines or not lines[-1].startswith(last):
        datagram = collector.recv(65_536)
        assert len(datagram) <= 508
        assert datagram.endswith(b"\n")
        lines += datagram.decode().splitlines()

    said = [line.removeprefix(prefix) for line in lines[lines.index(first) :]]
    channel = "topic.t.channel.ch"
    expected = [
        "topic.t.message_count:3|c",
        "topic.t.message_bytes:11|c",
        "topic.t.depth:0|g",
        "topic.t.backend_depth:0|g",
        f"{channel}.message_count:3|c",
        f"{channel}.depth:1|g",
        f"{channel}.backend_depth:0|g",
        f"{channel}.in_flight_count:2|g",
        f"{channel}.deferred_count:0|g",
        f"{channel}.requeue_count:0|c",
        f"{channel}.timeout_count:0|c",
        f"{channel}.clients:1|g",
    ]
    assert said[: len(expected)] == expected
    rest = said[len(expected) :]
    if beside.OURS:  # only ours reports the age of the oldest message, in milliseconds
        name, _, age = rest.pop(0).partition(":")
        assert name == f"{channel}.oldest_message_age"
        assert 0 <= int(age.removesuffix("|g")) < 60_000
    assert [line.partition(":")[0] for line in rest] == [f"mem.{name}" for name in (*MEMORY, "gc_runs")]
    assert [line.partition("|")[2] for line in rest] == ["g"] * len(MEMORY) + ["c"]
