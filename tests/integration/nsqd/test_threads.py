"""Every place of nsqd that hands work to a thread, while the system refuses new threads and memory."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from http.client import HTTPException

import pytest

from tests.support.nursery import ROOT

# nsqd in a process that may start ALLOWED threads, and while it serves as many as it has.
REFUSING = """
import os, sys, threading
from nsqd.cli import main

start, left = threading.Thread.start, int(os.environ["ALLOWED"])

def refuse(thread):
    global left
    if not left:
        raise RuntimeError("can't start new thread")
    left -= 1
    start(thread)

threading.Thread.start = refuse
sys.exit(main(sys.argv[1:]))
"""
# 4 for the resolution of names, which end, then the workers, the fsync threads and the search thread.
ENOUGH = 4 + 16 + 9 + 1


def start(folder, allowed, *flags, script=REFUSING):
    return subprocess.Popen(
        [
            *(sys.executable, "-c", script),
            *(f"--data-path={folder}", "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"),
            *("--https-address=", "--broadcast-address=127.0.0.1", *flags),
        ],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ALLOWED": str(allowed)},
    )


def http_port(process):
    for line in process.stderr:
        found = re.search(r"HTTP: listening on 127.0.0.1:(\d+)", line)
        if found:
            return int(found[1])
    raise AssertionError("nsqd has ended")


def asker(port):
    def ask(path, data=None):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data, timeout=20) as answer:
            return answer.read()

    return ask


@pytest.mark.parametrize("allowed", [0, 4, ENOUGH - 10, ENOUGH - 1])
def test_start_without_enough_threads_fails_with_a_sentence(tmp_path, allowed):
    with start(tmp_path, allowed) as process:
        _, log = process.communicate(timeout=20)

    assert process.returncode == 1
    assert re.search(r"FATAL: failed to instantiate nsqd - the system refuses one of \d+ threads", log)
    assert "Traceback" not in log


@pytest.mark.parametrize("sync_every", [1, 2500])
def test_nothing_starts_a_thread_while_nsqd_serves_and_stops(tmp_path, sync_every):
    flags = (f"--sync-every={sync_every}", "--sync-timeout=50ms", "--max-bytes-per-file=100000")
    with start(tmp_path, ENOUGH, *flags) as process:
        ask = asker(http_port(process))
        for path in ("/topic/create?topic=t", "/channel/create?topic=t&channel=c"):
            ask(path, b"")
        for _ in range(30):
            assert ask("/pub?topic=t", b"x" * 9000) == b"OK"
        for number in range(20):
            assert ask(f"/pub?topic=new{number}", b"x") == b"OK"
        assert b"OK" in ask("/ready")
        assert b"nsqd_fsyncs_total" in ask("/metrics")
        assert ask("/messages?topic=t&limit=3&contains=x")
        # Removed files and topics, checkpoints and nsqd.dat are written by threads too.
        ask("/channel/empty?topic=t&channel=c", b"")
        ask("/topic/delete?topic=new1", b"")
        deadline = time.monotonic() + 20
        while any("new1." in path.name for path in tmp_path.iterdir()):
            assert time.monotonic() < deadline
        assert float(re.search(rb"^nsqd_fsyncs_total (\S+)", ask("/metrics"), re.MULTILINE)[1]) > 0
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)

    assert process.returncode == 0
    assert not re.search("ERROR|WARN|FATAL|Traceback", log), log


def test_refused_memory_ends_nsqd_with_a_sentence(tmp_path):
    script = """
import sys
from nsqd.cli import main
from nsqd.server.http.info import InfoApi

async def refuse(*_):
    raise MemoryError

InfoApi.info = refuse
sys.exit(main(sys.argv[1:]))
"""
    with start(tmp_path, ENOUGH, script=script) as process:
        ask = asker(http_port(process))
        with pytest.raises((OSError, HTTPException)):
            ask("/info")
        _, log = process.communicate(timeout=20)

    assert process.returncode == 2
    assert "FATAL: out of memory: the system refuses memory to this process" in log
