"""A node leaves for good, and another has what it owed: real processes, their folders deleted at the end."""

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import Cluster, free_port
from tests.support.waiting import wait_until
from tests.support.wire import Wire

ROOT = Path(__file__).parents[3]
numbers = itertools.count(700)
LATER = "--carry-after=60s"


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def nsqd(cluster, *flags, **more):
    return cluster.nsqd(f"--node-id={next(numbers)}", LATER, *flags, **more)


def drain(node, *flags):
    return subprocess.run(
        [sys.executable, "-m", "nsqd.drain", f"--http-address={node.http_address}", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def publish(node, count, topic="t", first=0):
    bodies = [b"%d" % number for number in range(first, first + count)]
    node.post(f"/mpub?topic={topic}", b"\n".join(bodies))
    return bodies


def channel(node, name="c", topic="t"):
    stats = node.get(f"/stats?format=json&topic={topic}")
    channels = [one for found in stats["topics"] or [] for one in found["channels"] or []]
    return next((one for one in channels if one["channel_name"] == name), {})


def take(node, count, *, name="c", topic="t"):
    wait_until(lambda: channel(node, name, topic).get("depth", 0) >= count, f"{count} wait", seconds=20)
    wire = Wire(("127.0.0.1", node.tcp_port))
    wire.subscribe(topic, name, count)
    messages = wire.messages(count)
    wire.send(*(b"FIN " + message.id + b"\n" for message in messages))
    wire.ask(b"NOP\n") if False else None
    wait_until(lambda: not channel(node, name, topic)["in_flight_count"], "all are answered")
    more = wire.has_more(0.2)
    wire.close()
    assert not more
    return messages


def test_a_node_that_leaves_hands_over_what_nobody_reads_and_its_folder_may_go(cluster):
    taker = nsqd(cluster)
    node = nsqd(cluster)
    node.post("/channel/create?topic=t&channel=c") if node.post("/topic/create?topic=t") is not None else None
    bodies = publish(node, 50)

    done = drain(node, f"--hand-over-to={taker.tcp_address}")

    assert (done.returncode, done.stderr) == (0, ""), node.logs()[-3000:] + taker.logs()[-3000:]
    node.stop()
    shutil.rmtree(node.folder)
    assert sorted(one.body for one in take(taker, 50)) == sorted(bodies)
