"""A full disk: publishers get an error, no acknowledged message is lost, no restart is needed.

A limit on the size of the files that the process may write stands for the full disk; unlike a full disk it
can be set and lifted while nsqd runs.
"""

import resource

import pytest

from tests.support import beside
from tests.support.waiting import wait_until
from tests.support.wire import dpub, fin, mpub, pub

UNLIMITED = resource.RLIM_INFINITY
REASON = b"file too large"


@pytest.fixture
def nsqd(cluster):
    # Without a memory queue the original must also write to the disk.
    return cluster.nsqd(f"--mem-queue-size={10 if beside.OURS else 0}")


@pytest.fixture
def disk(nsqd):
    """Sets how large the files of nsqd may become."""

    class Disk:
        def allows(self, size):
            resource.prlimit(nsqd.pid, resource.RLIMIT_FSIZE, (size, UNLIMITED))

        def fills_up(self):
            self.allows(0)

        def is_freed(self):
            self.allows(UNLIMITED)

    return Disk()


def healthy(nsqd):
    return nsqd.request("GET", "/ping") == (200, b"OK")


def received(connect, nsqd, topic="t", channel="ch"):
    """The bodies of all pending messages, as a new consumer gets them."""
    wire = connect(nsqd)
    wire.subscribe(topic, channel)

    def statistics():
        (found,) = nsqd.get(f"/stats?format=json&topic={topic}")["topics"]
        return found

    # The original takes a moment to move messages from a topic to its channel.
    wait_until(lambda: statistics()["depth"] == 0, "all have gone on to the channel")
    found = statistics()
    depth = next(c["depth"] for c in found["channels"] if c["channel_name"] == channel)
    wire.send(b"RDY 2500\n")
    messages = wire.messages(depth)
    wire.send(*[fin(message) for message in messages])
    wire.quiet()
    wire.close()
    return [message.body for message in messages]


@pytest.mark.parametrize(
    ("word", "command"),
    [("PUB", pub("t", b"lost")), ("MPUB", mpub("t", b"lost", b"lost")), ("DPUB", dpub("t", 100, b"lost"))],
)
def test_publisher_gets_error_and_its_connection_is_closed(nsqd, disk, connect, word, command):
    connect(nsqd).publish("t", b"before")
    disk.fills_up()
    refused = connect(nsqd).refusal(command)
    if not beside.OURS:  # the original also names the file
        refused = refused[: len(f"E_{word}_FAILED {word} failed ")] + refused[-len(REASON) :]
    assert refused == f"E_{word}_FAILED {word} failed ".encode() + REASON
    disk.is_freed()
    connect(nsqd).publish("t", b"after")
    assert received(connect, nsqd) == [b"before", b"after"]


def test_over_http_answer_is_503_exiting(nsqd, disk, connect):
    nsqd.post("/pub?topic=t", b"before")
    disk.fills_up()
    exiting = (503, b'{"message":"EXITING"}')
    assert nsqd.request("POST", "/pub?topic=t", b"lost") == exiting
    assert nsqd.request("POST", "/pub?topic=t&defer=5", b"lost") == exiting
    assert nsqd.request("POST", "/mpub?topic=t", b"lost\nlost") == exiting
    assert nsqd.request("POST", "/pub?topic=a.new.one", b"lost") == exiting
    disk.is_freed()
    assert nsqd.post("/pub?topic=t", b"after") == b"OK"
    assert received(connect, nsqd) == [b"before", b"after"]


def test_ping_readiness_and_statistics_say_so_until_publish_succeeds(nsqd, disk, connect):
    disk.fills_up()
    connect(nsqd).refusal(pub("t", b"lost"))
    status, said = nsqd.request("GET", "/ping")
    # The original names the file between the two.
    assert (status, said[:6], said[-len(REASON) :]) == (500, b"NOK - ", REASON)
    if beside.OURS:
        assert said == b"NOK - " + REASON
        assert nsqd.request("GET", "/ready") == (503, said)
        assert nsqd.request("GET", "/live") == (200, b"OK")  # a restart would not help
    assert nsqd.get("/stats?format=json")["health"].encode() == said
    disk.is_freed()
    connect(nsqd).publish("t", b"after")
    wait_until(lambda: healthy(nsqd), "it is healthy again")
    assert nsqd.request("GET", "/ready") == (200, b"OK") or not beside.OURS


def test_node_is_healthy_after_disk_is_freed_without_publishes(nsqd, disk, connect):
    disk.fills_up()
    connect(nsqd).refusal(pub("t", b"lost"))
    assert not healthy(nsqd)
    disk.is_freed()
    wait_until(lambda: healthy(nsqd), "it is healthy again")


def test_deleted_topic_clears_its_problems(nsqd, disk, connect):
    connect(nsqd).publish("t", b"m")
    log_size = max(path.stat().st_size for path in nsqd.folder.glob("t.topic/*.log"))
    disk.allows(2000 + log_size)
    connect(nsqd).refusal(pub("t", b"m" * 100_000))
    assert not healthy(nsqd)
    nsqd.post("/topic/delete?topic=t")
    assert healthy(nsqd)


def test_node_is_unhealthy_while_disk_is_full(nsqd, disk, connect):
    disk.allows(3000)
    body = b"m" * 10_000
    connect(nsqd).refusal(pub("t", body))
    # Small files can still be written, but not the message that was refused.
    checkpoint = nsqd.folder / "t.topic" / "checkpoint.0"
    wait_until(checkpoint.exists, "a checkpoint is written")
    assert not healthy(nsqd)
    connect(nsqd).refusal(pub("t", body))
    assert not healthy(nsqd)
