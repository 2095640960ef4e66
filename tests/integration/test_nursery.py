"""A forked process is the same as an executed one, in everything that a test can see."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import nursery
from tests.support.processes import ROOT
from tests.support.tools import Tool, publish, run_tool
from tests.support.waiting import wait_until


@pytest.fixture(params=["forked", "executed"])
def nsqd(cluster, request):
    nursery.allowed = nursery.POSSIBLE and request.param == "forked"
    daemon = cluster.nsqd()
    if nursery.POSSIBLE:
        assert isinstance(daemon.process, nursery.Forked) is (request.param == "forked")
    return daemon


def test_it_ends_by_a_signal_or_with_a_code(nsqd):
    assert nsqd.process.poll() is None
    assert nsqd.stop() == 0
    nsqd.start()
    nsqd.kill()
    assert nsqd.process.poll() == -9
    nsqd.process.send_signal(15)  # the process has ended, so this has no effect


def test_it_has_its_folder_its_environment_and_only_its_own_files(nsqd):
    if not Path("/proc").exists():
        pytest.skip("no /proc here")
    of = Path(f"/proc/{nsqd.pid}")
    assert (of / "cwd").resolve() == nsqd.folder.resolve()
    assert "PYTHONPATH=" + str(ROOT) in (of / "environ").read_text().split("\0")
    files = {str(one.readlink()) for one in (of / "fd").iterdir()}
    named = {one.split(":")[0] for one in files}
    assert len([one for one in files if one.startswith("socket:")]) <= 5  # two listen; uvloop has a pair
    assert named <= {"/dev/null", "socket", "pipe", "anon_inode"} | {
        one for one in files if str(nsqd.folder) in one
    }


def test_what_it_refuses_is_a_code_and_a_sentence(cluster):
    daemon = cluster.daemon("nsqd", ["--node-id=5000"]).spawn()

    assert daemon.wait() == 1
    assert "node-id" in daemon.logs()


@pytest.fixture(params=["forked", "executed"])
def way(request):
    nursery.allowed = nursery.POSSIBLE and request.param == "forked"
    return request.param


@pytest.mark.usefixtures("way")
def test_a_tool_reads_stdin_prints_and_ends_with_its_code(cluster, tmp_path):
    nsqd = cluster.nsqd()
    at = f"-nsqd-tcp-address={nsqd.tcp_address}"
    sent = run_tool("to_nsq", "-topic=t", at, stdin=b"one\n" * 50_000)
    refused = run_tool("nsq_tail", "-topic=t", "-no-such-flag", cwd=tmp_path)

    assert (sent.returncode, sent.stdout) == (0, b"")
    assert nsqd.get("/stats?format=json&topic=t")["topics"][0]["message_count"] == 50_000
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"no-such-flag" in refused.stderr


def test_a_tool_that_runs_has_its_files_and_takes_signals(cluster, way, tmp_path):
    nsqd = cluster.nsqd()
    publish(nsqd, "t", [b"one"], "c")
    flags = ["-topic=t", "-channel=c", f"-nsqd-tcp-address={nsqd.tcp_address}"]
    with Tool(tmp_path, "nsq_tail", *flags) as tool:
        assert isinstance(tool.process, nursery.Forked) is (nursery.POSSIBLE and way == "forked")
        wait_until(lambda: tool.printed() == b"one\n", "it prints")
        assert tool.stop() == 0
    assert "Traceback" not in tool.said()


@pytest.mark.skipif(not nursery.POSSIBLE, reason="daemons are executed here")
def test_no_daemon_outlives_who_started_it(tmp_path):
    starts = (
        "import sys, pathlib; from tests.support.processes import Cluster;"
        "print(Cluster(pathlib.Path(sys.argv[1])).nsqlookupd().pid, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", starts, str(tmp_path / "cluster")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as who:
        pid = int(who.stdout.readline())
        handle = os.pidfd_open(pid)
        who.kill()

    try:
        wait_until(lambda: nursery.readable(handle, 0), "the daemon ended")
    finally:
        os.close(handle)
