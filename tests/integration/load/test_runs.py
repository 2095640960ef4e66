"""Short runs: a cluster that exists, TLS and AUTH, and clusters with a fault."""

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
from tests.support.waiting import wait_until

PROJECT = Path(__file__).parents[3]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

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


def test_cluster_and_folder_are_left_as_they_were(nsq_load, tmp_path, cluster):
    lookupd = cluster.nsqlookupd()
    nsqd = cluster.nsqd()

    code, text, _ = nsq_load(LITTLE, f"--attach={lookupd.http_address}", "--workers=2")

    assert code == 0, text
    assert nsqd.get("/stats?format=json")["topics"] == []
    assert lookupd.get("/topics") == {"topics": []}
    # The journal and the logs were removed.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster", "report", "tried.toml"]


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
