"""After a failed fsync the topic accepts no publishes until a restart; the other topics continue."""

import json
import signal

import pytest

from tests.support.patched import PatchedNsqd

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
