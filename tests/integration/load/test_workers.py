"""Workers as separate processes, as on other hosts: they only know the address of the master."""

import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.ports import free_port
from load.journal import read_journal
from tests.integration.load.test_runs import PROJECT, run_profile, surroundings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


EVERYTHING = """
about = "All kinds of users."
seconds = 3
[cluster]
nsqadmin = true
flags = ["--msg-timeout=2s"]
[topics]
count = 2
channels = 2
[[publishers]]
kind = "PUB"
users = 2
rate = 100
[[publishers]]
kind = "MPUB"
rate = 500
batch = 10
[[publishers]]
kind = "DPUB"
rate = 20
delay_ms = [10, 1000]
[[publishers]]
kind = "HTTP"
rate = 20
[[publishers]]
kind = "HTTP-MPUB"
rate = 100
batch = 10
[[consumers]]
users = 4
requeue = 0.05
abandon = 0.01
touch = 0.05
hold_ms = [100, 1000]
[[pollers]]
rate = 5
[[pollers]]
ask = "nodes"
rate = 5
[[browsers]]
rate = 5
"""


def worker(folder, master):
    """Start ``nsq-load worker`` in its own folder, like on another host."""
    folder.mkdir()
    with (folder / "said").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "load", "worker", f"--master={master}"],
            cwd=folder,
            stdout=said,
            stderr=said,
            env=surroundings(folder) | {"PYTHONPATH": f"{PROJECT}:{PROJECT}/client"},
        )


def test_users_of_all_kinds_on_two_workers_are_counted_to_last_message(tmp_path):
    # An address of this machine on which nothing else listens.
    master = f"127.0.0.2:{free_port()}"
    with ExitStack() as stack:
        others = [stack.enter_context(worker(tmp_path / f"host-{number}", master)) for number in (1, 2)]
        for other in others:
            stack.callback(other.kill)
        code, text, report = run_profile(
            tmp_path, EVERYTHING, "--start", "--keep", "--other-workers=2", f"--bind={master}"
        )
        # Without its master a worker of Locust would end a minute later.
        ended = [other.wait(20) for other in others]

    assert code == 0, text + "".join((tmp_path / f"host-{n}" / "said").read_text() for n in (1, 2))
    assert (report["missing"], report["unknown"]) == (0, 0)
    assert report["received"] == 2 * report["acknowledged"] > 0
    assert {"requeue", "timeout"} <= report["duplicates"].keys() <= {"requeue", "timeout"}
    assert {"publish", "delivery", "lookup", "page"} <= report["latency_ms"].keys()
    assert report["counts"]["TOUCH"] > 0
    assert all(cost["memory_mb"] > 10 for cost in report["daemons"].values())
    assert "<svg" in (tmp_path / "report" / "report.html").read_text()
    assert ended == [0, 0]
    # Journal, logs and data were kept.
    kept = Path(re.search(r"Kept: (\S+)", text)[1])
    assert kept.parent == tmp_path
    assert {"nsqd-1", "nsqlookupd", "locust.log"} <= {path.name for path in kept.iterdir()}
    tally = read_journal(kept / "tally.jsonl")
    # Both workers put load on, each under its own id, and both reported their end.
    assert len(tally.last_deltas) == 2
    assert set(tally.last_deltas) <= tally.ended
    publishers = {}
    for line in kept.joinpath("tally.jsonl").read_text().splitlines()[1:]:
        delta = json.loads(line)
        seen = publishers.setdefault(delta["worker"], set())
        seen |= {key.split()[1][: len(delta["worker"])] for key in delta["acked"]}
    assert publishers == {name: {name} for name in tally.last_deltas}
