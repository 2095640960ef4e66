"""Hands a data path of real size without a process over to a running nsqd, and measures and counts it.

python -m tests.campaign.carried orphan 1024
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.processes import Cluster, Daemon
from tests.support.wire import Wire

ROOT = Path(__file__).parents[3]
BODY = 1000
BATCH = 500
# Messages that are read before the node ends, and messages read at a time.
READ = 5_000
TURN = 2_000


def run(megabytes: int) -> bool:
    """Return whether nothing was lost and nothing came twice."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder))
        try:
            return _run(cluster, megabytes)
        finally:
            cluster.close()


def _run(cluster: Cluster, megabytes: int) -> bool:
    taker, node = cluster.nsqd("--node-id=1", "--carry-after=60s"), cluster.nsqd("--node-id=2")
    count = megabytes * 1_000_000 // BODY // BATCH * BATCH
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    for first in range(0, count, BATCH):
        bodies = (b"%d " % number for number in range(first, first + BATCH))
        node.post("/mpub?topic=t", b"\n".join(body.ljust(BODY, b".") for body in bodies))
    done = _read(node, READ)
    node.stop()
    began = time.monotonic()
    command = [sys.executable, "-m", "nsqd.data", "hand-over", f"--data-path={node.folder}"]
    process = subprocess.Popen([*command, f"--to={taker.tcp_address}"], cwd=ROOT)
    _, status, used = os.wait4(process.pid, 0)
    took_s = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        return False
    shutil.rmtree(node.folder)
    rss = (Path("/proc") / str(taker.pid) / "status").read_text().partition("VmHWM:")[2].split()[0]
    print(
        f"{megabytes} MB in {count} messages handed over in {took_s:.1f} s: {megabytes / took_s:.0f} MB/s,"
        f" {used.ru_utime + used.ru_stime:.1f} s of a processor, at most {used.ru_maxrss >> 10} MiB;"
        f" the taker at most {int(rss) >> 10} MiB"
    )
    began = time.monotonic()
    rest = _read(taker, count - len(done))
    print(f"{len(rest)} read from the taker in {time.monotonic() - began:.1f} s")
    left = taker.get("/stats?format=json&topic=t")["topics"][0]["channels"][0]["depth"]
    exact = len(rest) == len(set(rest)) and not set(rest) & set(done) and len({*rest, *done}) == count
    print(f"{count} messages, each once: {exact}; {left} are left")
    return exact and not left


def _read(node: Daemon, count: int) -> list[int]:
    """Finish *count* messages and return their numbers."""
    wire = Wire(("127.0.0.1", node.tcp_port))
    # On a slow machine a heartbeat would otherwise come between the messages.
    wire.identify(heartbeat_interval=60_000)
    wire.subscribe("t", "c", TURN)
    found: list[int] = []
    while len(found) < count:
        messages = wire.messages(min(TURN, count - len(found)))
        if len(found) + TURN >= count:
            wire.send(b"RDY 0\n")
        wire.send(b"".join(b"FIN " + one.id + b"\n" for one in messages))
        found += [int(one.body.split()[0]) for one in messages]
    wire.send(b"RDY 0\n")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        (channel,) = node.get("/stats?format=json&topic=t")["topics"][0]["channels"]
        if not channel["in_flight_count"]:
            break
        time.sleep(0.05)
    wire.close()
    return found
