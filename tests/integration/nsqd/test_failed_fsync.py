"""After a failed fsync the topic accepts no publishes until a restart; the other topics continue."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from urllib.error import HTTPError

import pytest

from tests.support.nursery import ROOT

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


class Node:
    """An nsqd with its HTTP port."""

    def __init__(self, folder, flags, **environment):
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", BREAKING),
                *(f"--data-path={folder}", "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"),
                *("--https-address=", "--broadcast-address=127.0.0.1", *flags),
            ],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )
        self.log = ""
        for line in self.process.stderr:
            self.log += line
            if found := re.search(r"HTTP: listening on 127.0.0.1:(\d+)", line):
                self.port = int(found[1])
                break

    def ask(self, path, data=None):
        """Return the status and the body of an answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", data, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def stop(self):
        """End nsqd in good order; return what it has logged."""
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=30)
        assert self.process.returncode == 0
        return self.log + log


@pytest.mark.parametrize("sync_every", [1, 2500])
def test_topic_with_a_failed_fsync_waits_for_a_restart_and_says_so(tmp_path, sync_every):
    flags = (f"--sync-every={sync_every}", "--sync-timeout=50ms")
    node = Node(tmp_path, flags, BROKEN="1")
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
    assert f"TOPIC(bad): {REASON}" in node.stop()

    node = Node(tmp_path, flags)
    assert node.ask("/live") == (200, "OK")
    assert node.ask("/pub?topic=bad", b"m") == (200, "OK")
    node.stop()
