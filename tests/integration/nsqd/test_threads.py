"""Every place of nsqd that hands work to a thread, while the system refuses new threads and memory."""

import re
import signal
from http.client import HTTPException

import pytest

from tests.support.patched import PatchedNsqd
from tests.support.waiting import wait_until

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


@pytest.mark.parametrize("allowed", [0, 4, ENOUGH - 10, ENOUGH - 1])
def test_start_without_enough_threads_fails_with_sentence(tmp_path, allowed):
    with PatchedNsqd(REFUSING, tmp_path, ALLOWED=str(allowed)) as nsqd:
        assert nsqd.ended() == 1

    assert re.search(r"FATAL: failed to instantiate nsqd - the system refuses one of \d+ threads", nsqd.log)
    assert "Traceback" not in nsqd.log


@pytest.mark.parametrize("sync_every", [1, 2500])
def test_nsqd_serves_and_stops_without_new_threads(tmp_path, sync_every):
    flags = (f"--sync-every={sync_every}", "--sync-timeout=50ms", "--max-bytes-per-file=100000")
    with PatchedNsqd(REFUSING, tmp_path, *flags, ALLOWED=str(ENOUGH)) as nsqd:
        for path in ("/topic/create?topic=t", "/channel/create?topic=t&channel=c"):
            nsqd.ask(path, b"")
        for topic in ["t"] * 30 + [f"new{number}" for number in range(20)]:
            assert nsqd.ask(f"/pub?topic={topic}", b"x" * 9000) == (200, "OK")
        assert nsqd.ask("/ready") == (200, "OK")
        assert nsqd.ask("/messages?topic=t&limit=3&contains=x")[0] == 200
        # Removed files and topics, checkpoints and nsqd.dat are written by threads too.
        nsqd.ask("/channel/empty?topic=t&channel=c", b"")
        nsqd.ask("/topic/delete?topic=new1", b"")
        wait_until(lambda: not list(tmp_path.glob("*new1.*")), "the folder of the topic is gone")
        assert float(re.search(r"^nsqd_fsyncs_total (\S+)", nsqd.ask("/metrics")[1], re.MULTILINE)[1]) > 0
        assert nsqd.ended(signal.SIGTERM) == 0

    assert not re.search("ERROR|WARN|FATAL|Traceback", nsqd.log), nsqd.log


WITHOUT_MEMORY = """
import sys
from nsqd.cli import main
from nsqd.server.http.info import InfoApi

async def refuse(*_):
    raise MemoryError

InfoApi.info = refuse
sys.exit(main(sys.argv[1:]))
"""


def test_refused_memory_ends_nsqd_with_sentence(tmp_path):
    with PatchedNsqd(WITHOUT_MEMORY, tmp_path) as nsqd:
        with pytest.raises((OSError, HTTPException)):
            nsqd.ask("/info")
        assert nsqd.ended() == 2

    assert "FATAL: out of memory: the system refuses memory to this process" in nsqd.log
