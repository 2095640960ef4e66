"""Short runs: all kinds of users on two workers, TLS and AUTH, and clusters in which something is wrong."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.auth_server import AuthServer
from tests.support.certificates import Authority
from tests.support.mounts import small_disk
from tests.support.waiting import wait_until

PROJECT = Path(__file__).parents[3]

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

LITTLE = """
seconds = 2
[[publishers]]
kind = "MPUB"
rate = 500
batch = 50
[[consumers]]
users = 1
"""


def run_profile(folder, profile, *arguments):
    """Run nsq-load with a profile; return its exit code, its output and its report."""
    path = folder / "tried.toml"
    path.write_text(profile)
    report = folder / "report"
    ended = subprocess.run(
        [sys.executable, "-m", "load", "run", str(path), f"--report={report}", *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env=surroundings(folder),
    )
    written = report / "report.json"
    return (
        ended.returncode,
        ended.stdout + ended.stderr,
        json.loads(written.read_text()) if written.exists() else {},
    )


def surroundings(folder):
    """The environment of nsq-load, in which files that are left behind would be in *folder*."""
    return os.environ | {"TMPDIR": str(folder), "PYTHONPATH": f"{PROJECT}/client"}


@pytest.fixture
def nsq_load(tmp_path):
    return partial(run_profile, tmp_path)


def test_all_kinds_of_users_on_two_workers_are_counted_to_the_last_message(nsq_load, tmp_path):
    code, text, report = nsq_load(EVERYTHING, "--start", "--workers=2")

    assert code == 0, text
    assert (report["missing"], report["unknown"]) == (0, 0)
    assert report["received"] == 2 * report["acknowledged"] > 0
    assert {"requeue", "timeout"} <= report["duplicates"].keys() <= {"requeue", "timeout"}
    assert {"publish", "delivery", "lookup", "page"} <= report["latency_ms"].keys()
    assert report["counts"]["TOUCH"] > 0
    assert all(cost["memory_mb"] > 10 for cost in report["daemons"].values())
    # The journal, the data and the logs were removed.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report", "tried.toml"]
    assert "<svg" in (tmp_path / "report" / "report.html").read_text()


def test_cluster_is_left_as_it_was(nsq_load, cluster):
    lookupd = cluster.nsqlookupd()
    nsqd = cluster.nsqd()

    code, text, _ = nsq_load(LITTLE, f"--attach={lookupd.http_address}")

    assert code == 0, text
    assert nsqd.get("/stats?format=json")["topics"] == []
    assert lookupd.get("/topics") == {"topics": []}


def test_messages_go_through_tls_and_auth(nsq_load, tmp_path):
    authority = Authority(tmp_path)
    (tmp_path / "secret").write_text("open sesame\n")
    with AuthServer() as server:
        flags = [*authority.flags, "--tls-required=tcp-https", f"--auth-http-address={server.address}"]
        code, text, report = nsq_load(
            LITTLE,
            "--start",
            *(f"--nsqd-flag={flag}" for flag in flags),
            f"--tls-root-ca-file={authority.file}",
            f"--auth-secret-file={tmp_path / 'secret'}",
        )

    assert code == 0, text
    assert report["missing"] == 0
    assert report["received"] == report["acknowledged"] > 0
    assert server.asked


def test_paused_channel_is_fault_that_has_name(nsq_load, cluster):
    lookupd = cluster.nsqlookupd()
    nsqd = cluster.nsqd()
    for path in ("/topic/create?topic=t", "/channel/create?topic=t&channel=channel-0"):
        nsqd.post(path)
    nsqd.post("/channel/pause?topic=t&channel=channel-0")

    code, text, report = nsq_load(LITTLE, f"--attach={lookupd.http_address}", "--topic=t")

    assert code == 1
    assert report["backlog_at_end"] >= report["missing"] == report["acknowledged"] > 0, text
    assert f"Channel channel-0 of topic t is paused on {nsqd.http_address}." in text
    assert "nsq-load: Nothing was consumed, so nothing was shown." in text
    # The topic existed before the load, so it stays.
    assert [topic["topic_name"] for topic in nsqd.get("/stats?format=json")["topics"]] == ["t"]


def test_disk_that_takes_no_more_is_fault_that_has_name(nsq_load):
    taken = shutil.disk_usage("/tmp")
    percent = int(100 * (taken.total - taken.free) / taken.total)
    code, text, report = nsq_load(LITTLE, "--start", f"--nsqd-flag=--disk-watermark={max(1, percent - 1)}%")

    assert code == 1
    assert (report["acknowledged"], report["missing"]) == (0, 0)
    assert report["refused"] > 0
    assert re.search(r"nsq-load: [\d,]+ messages were refused, allowed are 0", text)
    assert "The disk of an nsqd" in text


FILLING = """
seconds = 6
[cluster]
nsqd = 1
[[publishers]]
kind = "MPUB"
users = 2
rate = 4000
size = 2000
batch = 50
[[consumers]]
rate = 50
"""


def test_disk_that_is_really_full_is_told_judged_and_everything_ended(nsq_load, tmp_path):
    with small_disk(tmp_path / "small", 12) as disk:
        flags = [f"--data-path={disk}", "--max-bytes-per-file=200000"]
        code, text, report = nsq_load(FILLING, "--start", *(f"--nsqd-flag={flag}" for flag in flags))

    assert code == 1, text
    assert "The disk of an nsqd is full" in text
    assert "no space left on device" in text
    assert report["refused"] > 0
    # Messages that were answered with OK were written, and are read when the load is over.
    assert (report["missing"], report["unknown"]) == (0, 0), text
    assert report["acknowledged"] > 2000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report", "small", "tried.toml"]


def test_started_processes_end_with_run(tmp_path):
    profile = tmp_path / "tried.toml"
    profile.write_text(LITTLE.replace("seconds = 2", "seconds = 200"))
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "load", "run", str(profile), "--start"],
            cwd=PROJECT,
            stdout=said,
            stderr=said,
            env=surroundings(tmp_path),
        )
    wait_until(lambda: b"acknowledged" in (tmp_path / "said").read_bytes(), "the load is on", 120)
    process.terminate()

    assert process.wait(60) == 0
    assert b"Ended early; what there is is judged." in (tmp_path / "said").read_bytes()
    assert list(tmp_path.glob("nsq-load-*")) == []
