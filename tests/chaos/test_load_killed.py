"""A node killed under load: no acknowledged message is missing, and the kill explains all duplicates.

And nsq-load itself, killed or hung up: nothing that it started stays.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.load.test_runs import PROJECT, run_profile, surroundings
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

STEADY = """
seconds = 8
[cluster]
nsqd = 2
[[publishers]]
kind = "PUB"
users = 4
rate = 400
[[publishers]]
kind = "MPUB"
users = 2
rate = 1000
batch = 50
[[consumers]]
users = 2
"""


def test_nsqd_killed_under_load_loses_nothing(tmp_path):
    code, text, result = run_profile(tmp_path, STEADY, "--start", "--kill", "--workers=2")

    assert code == 0, text
    assert result["killed"] == ["nsqd-1"]
    assert (result["missing"], result["unknown"], result["backlog_at_end"]) == (0, 0, 0)
    assert result["acknowledged"] > 1000
    # A client noticed the kill; otherwise the run shows nothing.
    assert any("Connection" in error for error in result["errors"])
    assert result["duplicates"].keys() <= {"kill"}


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_processes_of_load_end_when_it_is_hung_up_or_killed(tmp_path, number):
    (tmp_path / "tried.toml").write_text(STEADY.replace("seconds = 8", "seconds = 3600"))
    with subprocess.Popen(
        [sys.executable, "-m", "load", "run", str(tmp_path / "tried.toml"), "--start", "--workers=1"],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=surroundings(tmp_path),
        # Tests that are run with nohup would hand on that SIGHUP is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509 - no other thread runs
    ) as process:
        assert process.stdout is not None
        children: set[int] = set()

        def all_started() -> bool:
            listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            children.update(map(int, listed))
            return len(listed) == 5  # nsqlookupd, two nsqd, Locust and its worker

        try:
            wait_until(all_started, "everything is started", 60)
            process.stdout.close()
            process.send_signal(number)
            process.wait(120)
            wait_until(lambda: not any(map(is_running, children)), "nothing is left", 60)
        except BaseException:
            process.kill()
            for child in filter(is_running, children):
                os.kill(child, signal.SIGKILL)
            raise

    if number == signal.SIGHUP:
        assert [path.name for path in tmp_path.iterdir()] == ["tried.toml"]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
