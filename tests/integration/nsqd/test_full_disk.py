"""A file system that is really full: consuming messages frees it again, without other help.

The tests mount 16 MiB of memory, which only root can do; for other users they are skipped.
"""

import shutil

import pytest

from tests.support import mounts
from tests.support.waiting import wait_until
from tests.support.wire import NO_ID, NOT_IN_FLIGHT, fin, mpub

MIB = 1 << 20
BODY = b"." * 1000
BATCH = 20


@pytest.fixture
def small_disk(tmp_path):
    with mounts.small_disk(tmp_path / "small", 16) as folder:
        yield folder


@pytest.fixture
def nsqd(cluster, small_disk):
    """An nsqd on the small disk. Its log is elsewhere; segments are so small that there are several."""
    nsqd = cluster.daemon(
        "nsqd", ["--broadcast-address=127.0.0.1", f"--data-path={small_disk}", "--max-bytes-per-file=2097152"]
    )
    nsqd.start()
    nsqd.create("t", "ch")
    yield nsqd
    if nsqd.is_running():
        nsqd.kill()


def fill(nsqd, connect, topic="t"):
    """Publish until refused, first batches, then single messages; return the acknowledged numbers."""
    acknowledged = []
    number = 0
    for size in (BATCH, 1):
        wire = connect(nsqd)
        while True:
            bodies = [b"%d-%b" % (number + n, BODY) for n in range(size)]
            number += size
            wire.send(mpub(topic, *bodies))
            frame = wire.frame()
            if frame.kind == 1:
                assert b"no space left on device" in frame.data
                break
            acknowledged += [int(body.split(b"-")[0]) for body in bodies]
        wire.close()
    return acknowledged


def numbers(messages):
    return [int(message.body.split(b"-")[0]) for message in messages]


def consume(nsqd, connect, count, topic="t"):
    """Take and finish *count* messages; return their numbers."""
    wire = connect(nsqd)
    wire.subscribe(topic, "ch", ready=500)
    taken = []
    while len(taken) < count:
        message = wire.message()
        taken += numbers([message])
        wire.send(fin(message))
    hang_up(wire)
    return taken


def hang_up(wire):
    """Close after nsqd has handled all that was sent; messages in flight go back to the channel."""
    wire.send(b"RDY 0\n", b"FIN %b\n" % NO_ID)
    while wire.frame().data != NOT_IN_FLIGHT:
        pass
    wire.close()


def depth(nsqd, topic="t"):
    (found,) = nsqd.get(f"/stats?format=json&topic={topic}")["topics"]
    return sum(channel["depth"] for channel in found["channels"]) + found["depth"]


def healthy(nsqd):
    return nsqd.request("GET", "/ping") == (200, b"OK")


def test_consumed_full_disk_takes_publishes_again(nsqd, connect, small_disk):
    acknowledged = fill(nsqd, connect)
    assert len(acknowledged) > 8_000
    assert not healthy(nsqd)
    assert consume(nsqd, connect, len(acknowledged)) == acknowledged
    wait_until(lambda: healthy(nsqd), "it is healthy by itself", 10)
    assert nsqd.stop() == 0
    nsqd.start()
    assert depth(nsqd) == 0
    wait_until(lambda: shutil.disk_usage(small_disk).free > 10 * MIB, "the files are removed", 10)
    assert len(fill(nsqd, connect)) > 8_000


def test_stop_on_full_disk_keeps_what_was_finished(nsqd, connect):
    acknowledged = fill(nsqd, connect)
    # They are less than a segment, so no file can be removed.
    finished = consume(nsqd, connect, 300)
    assert nsqd.stop() == 0
    nsqd.start()
    assert depth(nsqd) == len(acknowledged) - 300
    assert sorted(consume(nsqd, connect, len(acknowledged) - 300)) == acknowledged[300:]
    assert finished == acknowledged[:300]
