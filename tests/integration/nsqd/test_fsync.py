"""Fsyncs: with ``--sync-every=1`` an OK comes after one; a failed one stops the publishes to its topic."""

import json
import signal
import threading

import pytest

from tests.support.nsqd_http import metrics
from tests.support.patched import PatchedNsqd
from tests.support.processes import Cluster
from tests.support.wire import Wire, mpub, pub


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("strict") / "cluster")
    yield cluster.nsqd("--sync-every=1")
    cluster.close()


def syncs(nsqd):
    return metrics(nsqd)["nsqd_fsyncs_total"]


def test_publishes_are_answered_after_sync_in_strict_mode(strict, connect, topic):
    wire = connect(strict)
    for publish in (
        lambda: wire.publish(topic, b"m"),
        lambda: wire.ask(mpub(topic, b"a", b"b")),
        lambda: strict.post(f"/pub?topic={topic}", b"m"),
        lambda: strict.post(f"/mpub?topic={topic}", b"a\nb"),
    ):
        before = syncs(strict)
        publish()
        assert syncs(strict) > before


def test_publishers_share_their_syncs(strict, connect, topic):
    publishers, each = 16, 25
    wires = [connect(strict) for _ in range(publishers)]
    before = syncs(strict)

    def publish(wire: Wire) -> None:
        for n in range(each):
            wire.publish(topic, b"%d" % n)

    threads = [threading.Thread(target=publish, args=(wire,)) for wire in wires]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (found,) = strict.get(f"/stats?format=json&topic={topic}")["topics"]
    assert found["message_count"] == publishers * each
    assert syncs(strict) - before < publishers * each


def test_stop_answers_waiting_publishers(cluster, connect):
    nsqd = cluster.nsqd("--sync-every=1")
    wires = [connect(nsqd) for _ in range(10)]
    for wire in wires:
        wire.send(*[pub("t", b"%d" % n) for n in range(50)])
    wires[0].ok()
    assert nsqd.stop() == 0
    acknowledged = sum(wire.rest().count(b"\0\0\0\x06\0\0\0\0OK") for wire in wires)
    nsqd.start()
    (found,) = nsqd.get("/stats?format=json")["topics"]
    assert found["depth"] > acknowledged


# --- after a failed fsync the topic accepts no publishes until a restart; the other topics continue


# nsqd whose fsyncs of the topic "bad" fail while BROKEN is set.
BREAKING = """
import errno, os, sys
from pathlib import Path
from nsqd.cli import main
from nsqd.log.disk import Disk

sync = Disk.sync

def fail(disk, fd):
    if "/bad.topic/" in os.readlink(f"/proc/self/fd/{fd}"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    sync(disk, fd)

if os.environ.get("BROKEN"):
    Disk.sync = fail
sys.exit(main(sys.argv[1:]))
"""
REASON = "no publishes until a restart: an fsync failed - input/output error"


@pytest.mark.parametrize("sync_every", [1, 2500])
def test_topic_with_failed_fsync_waits_for_restart_and_says_so(tmp_path, sync_every):
    flags = (f"--sync-every={sync_every}", "--sync-timeout=50ms")
    with PatchedNsqd(BREAKING, tmp_path, *flags, BROKEN="1") as node:
        assert node.ask("/live") == (200, "OK")
        node.ask("/topic/create?topic=bad", b"")
        status, _ = node.ask("/pub?topic=bad", b"m")
        assert status == 503
        assert node.ask("/pub?topic=good", b"m") == (200, "OK")
        sentence = f"NOK - topic bad: {REASON}"
        assert node.ask("/live") == (503, sentence)
        assert node.ask("/ready") == (503, sentence)
        topics = json.loads(node.ask("/stats?format=json")[1])["topics"]
        assert {one["topic_name"]: one.get("failed") for one in topics} == {"bad": REASON, "good": None}
        metrics = node.ask("/metrics")[1]
        assert 'nsqd_topic_writable{topic="bad"} 0' in metrics
        assert 'nsqd_topic_writable{topic="good"} 1' in metrics
        assert node.ended(signal.SIGTERM) == 0
    assert f"TOPIC(bad): {REASON}" in node.log

    with PatchedNsqd(BREAKING, tmp_path, *flags) as node:
        assert node.ask("/live") == (200, "OK")
        assert node.ask("/pub?topic=bad", b"m") == (200, "OK")
        assert node.ended(signal.SIGTERM) == 0
