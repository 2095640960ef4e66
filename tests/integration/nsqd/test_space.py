"""The disk holds the wanted messages and little more, even if a message, channel or old file is held back."""

from pathlib import Path

import pytest

from tests.support.processes import Daemon
from tests.support.waiting import wait_until
from tests.support.wire import Wire, dpub, fin, mpub, rdy

SEGMENT = 1 << 20
BODY = b"x" * 10_000
BATCH = 50
# Four segments; the wanted messages are small compared with them.
ALLOWED = 4 * SEGMENT


@pytest.fixture
def nsqd(cluster):
    return cluster.nsqd(f"--max-bytes-per-file={SEGMENT}", "--msg-timeout=10m", "--mem-queue-size=100")


def used(nsqd, topic="t"):
    """The bytes that the topic takes on disk."""
    found = 0
    for path in (nsqd.folder / f"{topic}.topic").iterdir():
        try:
            found += path.stat().st_size
        except FileNotFoundError:
            continue
    return found


class Flow:
    """Publishes to the topic and finishes every message that comes."""

    def __init__(self, connect, nsqd, channel="c"):
        self.publisher = connect(nsqd)
        self.consumer = connect(nsqd)
        self.consumer.subscribe("t", channel)
        self.consumer.send(rdy(1000))

    def flows(self, megabytes, also=()):
        for _ in range(megabytes * (1 << 20) // (BATCH * len(BODY))):
            assert self.publisher.ask(mpub("t", *[BODY] * BATCH)) == b"OK"
            got = self.consumer.messages(BATCH)
            self.consumer.send(*[fin(message) for message in got])
            for consumer in also:
                consumer()


def comes_down_to(nsqd, size):
    # After a look that finds nothing to remove, nsqd rests for ten times as long, up to ten seconds. Under
    # load it looks more than once while the last messages are being finished.
    wait_until(lambda: used(nsqd) <= size, f"the topic takes {size} bytes and not {used(nsqd)}", seconds=60)


def the_only_body(connect, nsqd, channel):
    wire = connect(nsqd)
    wire.subscribe("t", channel)
    wire.send(rdy(1))
    message = wire.message()
    wire.send(fin(message))
    return message.body


def test_deferred_message_keeps_no_other_message_on_disk(connect, nsqd):
    flow = Flow(connect, nsqd)
    assert flow.publisher.ask(dpub("t", 3_600_000, b"later" * 1000)) == b"OK"

    for _ in range(2):
        flow.flows(10)
        # The clients stay connected and messages continue to flow, which makes no difference.
        comes_down_to(nsqd, ALLOWED)


def test_stuck_message_keeps_no_other_message_on_disk(connect, nsqd):
    flow = Flow(connect, nsqd)
    stuck = connect(nsqd)
    stuck.subscribe("t", "other")
    assert flow.publisher.ask(mpub("t", b"stuck")) == b"OK"
    flow.consumer.send(fin(flow.consumer.message()))
    stuck.send(rdy(1))
    stuck.message()
    other = connect(nsqd)
    other.subscribe("t", "other")
    other.send(rdy(1000))

    def finish():
        other.send(*[fin(message) for message in other.messages(BATCH)])

    flow.flows(30, also=[finish])
    comes_down_to(nsqd, ALLOWED)
    other.close()
    stuck.close()

    assert the_only_body(connect, nsqd, "other") == b"stuck"
    nsqd.kill()
    nsqd.start()
    comes_down_to(nsqd, ALLOWED)


class Cramped(Daemon):
    """An nsqd that may have 256 files open."""

    def command(self):
        return ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *super().command()]


def test_topics_may_outnumber_descriptors(cluster):
    nsqd = cluster.daemon("nsqd", ["--broadcast-address=127.0.0.1"], kind=Cramped)
    nsqd.flags.append(f"--data-path={nsqd.folder}")
    nsqd.start()
    files = Path(f"/proc/{nsqd.pid}/fd")
    before = len(list(files.iterdir()))
    wire = Wire(("127.0.0.1", nsqd.tcp_port))
    for round_ in (b"1", b"2"):
        for number in range(300):
            wire.publish(f"t{number}", round_)

    assert len(list(files.iterdir())) < before + 100
    wire.close()
    wait_until(lambda: len(list(files.iterdir())) < before + 5, "idle files are closed", seconds=20)
    assert nsqd.request("GET", "/ping") == (200, b"OK")
