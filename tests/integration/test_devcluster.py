"""The command that runs a whole cluster, used as a person uses it."""

import html
import json
import os
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import CLUSTER_PORTS, free_port_offset, listens
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


class Runner:
    """A running nsq-cluster on its own ports."""

    def __init__(self, folder: Path, *flags: str, stdin: int = subprocess.DEVNULL) -> None:
        self.data = folder / "data"
        self.offset = free_port_offset(CLUSTER_PORTS)
        self.output = folder / "output"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "devcluster", "--data", self.data),
                    *("--port-offset", str(self.offset), "--status-every", "0.2", *flags),
                ],
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=Path(__file__).parents[2],
            )
        wait_until(lambda: self.has_ended() or "Ctrl-C stops" in self.text(), "the cluster says it runs", 60)
        assert not self.has_ended(), self.text()
        self.daemons = children_of(self.process.pid)

    def text(self) -> str:
        return self.output.read_text()

    def type(self, text: str) -> None:
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def get(self, port: int, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port + self.offset}{path}", timeout=10) as answer:
            return answer.read()

    def topics(self, port: int) -> list[dict]:
        return json.loads(self.get(port, "/stats?format=json"))["topics"]

    def listening_ports(self) -> list[int]:
        return [port for port in CLUSTER_PORTS if listens(port + self.offset)]

    def wait_until_nothing_is_left(self) -> None:
        wait_until(lambda: not any(is_alive(pid) for pid in self.daemons.values()), "no daemon is left", 20)
        assert self.listening_ports() == []


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def children_of(pid: int) -> dict[str, int]:
    """The daemons the runner started: program and data folder -> pid."""
    children = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        arguments = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        program = arguments[arguments.index(b"-m") + 1].decode()
        children[program if program not in children else f"second {program}"] = int(child)
    return children


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    runner = Runner(tmp_path, "--rate", "200", stdin=subprocess.PIPE)
    yield runner
    if not runner.has_ended():
        runner.process.kill()
        runner.process.wait()
    runner.process.stdin.close()
    for pid in runner.daemons.values():
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def handled(runner: Runner) -> list[int]:
    """The newest statistics of the two applications."""
    lines = re.findall(r"billing ([\d,]+)   analytics ([\d,]+)", runner.text())
    return [int(number.replace(",", "")) for number in lines[-1]] if lines else [0, 0]


def youngest(runner: Runner, since: int) -> float:
    """The lowest age of the oldest message in the output from offset *since* on."""
    ages = re.findall(r"the oldest ([\d.]+) s", runner.text()[since:])
    return min(map(float, ages), default=float("inf"))


def test_everything_runs_messages_flow_and_ctrl_c_leaves_nothing_behind(runner):
    assert sorted(runner.daemons) == ["nsqadmin", "nsqd", "nsqlookupd", "second nsqd"]
    assert len(runner.listening_ports()) == len(CLUSTER_PORTS)
    wait_until(lambda: min(handled(runner)) > 200, "both applications have read messages", 30)
    for port in (4151, 4251):
        assert sum(topic["message_count"] for topic in runner.topics(port)) > 0
    wait_until(lambda: b"orders" in runner.get(4171, "/"), "nsqadmin shows the topic", 10)
    nodes = json.loads(runner.get(4161, "/nodes"))["producers"]
    assert sorted(node["tcp_port"] - runner.offset for node in nodes) == [4150, 4250]

    runner.process.send_signal(signal.SIGINT)

    assert runner.process.wait(30) == 0, runner.text()
    assert runner.text().endswith("Stopping ...\nStopped.\n")
    runner.wait_until_nothing_is_left()


def test_dead_nsqd_is_named_and_restarted_at_enter_without_loss(runner):
    wait_until(lambda: min(handled(runner)) > 100, "both applications have read messages", 30)
    dead = runner.daemons["nsqd"]
    os.kill(dead, signal.SIGKILL)
    wait_until(lambda: "Press Enter to start nsqd-" in runner.text(), "the death is reported", 20)
    said = re.search(rf"(nsqd-[12]) \(pid {dead}\) ended with signal SIGKILL\.", runner.text())
    assert said, runner.text()
    before = min(handled(runner))
    wait_until(lambda: min(handled(runner)) > before + 100, "the other nsqd continues", 30)
    assert not runner.has_ended()
    folder, moved = runner.data / said[1], runner.data / "moved"
    folder.rename(moved)
    folder.write_text("in the way")

    runner.type("\n")

    wait_until(lambda: f"{said[1]} did not start (exit code 1)" in runner.text(), "the reason is printed", 30)
    assert "\n    [nsqd] " in runner.text()
    folder.unlink()
    moved.rename(folder)
    wait_until(lambda: runner.text().count(f"Press Enter to start {said[1]}") == 2, "it asks again", 20)
    runner.type("\n")
    wait_until(lambda: f"{said[1]} runs again (pid " in runner.text(), "it runs again", 30)
    assert len(runner.listening_ports()) == len(CLUSTER_PORTS)
    since = len(runner.text())
    # A lost message would stay unread, and its age would grow.
    wait_until(lambda: youngest(runner, since) < 3, "the messages in its files are read", 60)
    assert not re.search(r"   failed \d", runner.text())


def test_data_is_retained_until_fresh_start(tmp_path):
    offset = free_port_offset(CLUSTER_PORTS)
    command = ["devcluster", "--data", tmp_path / "data", "--port-offset", str(offset), "--no-traffic"]
    with subprocess.Popen(
        [sys.executable, "-m", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert any(b"Ctrl-C stops" in line for line in process.stdout)
        daemons = children_of(process.pid)
        url = f"http://127.0.0.1:{4151 + offset}/pub?topic=kept"
        urllib.request.urlopen(url, data=b"x", timeout=10).close()
        # It stops in order though its output can no longer be written.
        process.stdout.close()
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 0
    assert not any(is_alive(pid) for pid in daemons.values())

    def depth(*flags: str) -> int:
        runner = Runner(tmp_path, "--no-traffic", *flags)
        found = sum(topic["depth"] for topic in runner.topics(4151))
        runner.process.terminate()
        assert runner.process.wait(30) == 0, runner.text()
        return found

    assert depth() == 1
    assert depth("--fresh") == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_daemon_without_keyboard_is_restarted_and_ends_with_killed_runner(tmp_path):
    runner = Runner(tmp_path, "--sign-in", "--no-traffic")
    try:
        os.kill(runner.daemons["nsqadmin"], signal.SIGKILL)
        wait_until(lambda: "nsqadmin runs again (pid " in runner.text(), "it runs again", 40)
        assert "nsqadmin starts again in 5 s." in runner.text()
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(f"http://127.0.0.1:{4171 + runner.offset}/topics", timeout=10) as answer:
            asked, place = answer.read().decode(), answer.url
        (otto,) = re.findall(r'<a href="([^"]+)">otto</a>', asked)
        with browser.open(urllib.parse.urljoin(place, html.unescape(otto)), timeout=10) as answer:
            page, back = answer.read().decode(), answer.url
        runner.daemons = children_of(runner.process.pid)
    finally:
        runner.process.kill()
        runner.process.wait()

    assert place.startswith(f"http://127.0.0.1:{4180 + runner.offset}/authorize?")
    assert back == f"http://127.0.0.1:{4171 + runner.offset}/topics"
    assert "Signed in as otto" in re.sub(r"<[^>]+>", "", page)
    assert "otto (operator)" in runner.text()
    runner.wait_until_nothing_is_left()
