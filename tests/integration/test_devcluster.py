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


def test_it_stops_in_order_though_nobody_reads_what_it_says(tmp_path):
    offset = free_port_offset(CLUSTER_PORTS)
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "devcluster",
            "--data",
            tmp_path,
            "--port-offset",
            str(offset),
            "--no-traffic",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert any(b"Ctrl-C stops" in line for line in process.stdout)
        daemons = children_of(process.pid)
        process.stdout.close()
        process.send_signal(signal.SIGHUP)

        assert process.wait(60) == 0
    assert not any(is_alive(pid) for pid in daemons.values())


def test_devcluster_names_dead_nsqd_and_restarts_it_without_loss_at_enter(runner):
    wait_until(lambda: min(handled(runner)) > 100, "both applications have read messages", 30)
    dead = runner.daemons["nsqd"]
    os.kill(dead, signal.SIGKILL)
    wait_until(lambda: "Press Enter to start nsqd-" in runner.text(), "the death is reported", 20)
    said = re.search(rf"nsqd-[12] \(pid {dead}\) ended with signal SIGKILL\.", runner.text())
    assert said, runner.text()
    before = min(handled(runner))
    wait_until(lambda: min(handled(runner)) > before + 100, "the other nsqd goes on", 30)
    assert not runner.has_ended()

    runner.type("\n")

    wait_until(lambda: "runs again (pid " in runner.text(), "it runs again", 30)
    assert len(runner.listening_ports()) == len(CLUSTER_PORTS)
    since = len(runner.text())
    # A lost message would stay unread, and its age would grow.
    wait_until(lambda: youngest(runner, since) < 3, "what waited in its files is read", 60)
    assert "failed" not in runner.text()


def test_without_keyboard_daemon_that_dies_comes_back_by_itself(tmp_path):
    runner = Runner(tmp_path, "--no-traffic")
    try:
        os.kill(runner.daemons["nsqadmin"], signal.SIGKILL)
        wait_until(lambda: "nsqadmin runs again (pid " in runner.text(), "it runs again", 40)

        assert "nsqadmin starts again in 5 s." in runner.text()
        assert b"nsqadmin" in runner.get(4171, "/")
    finally:
        runner.process.terminate()
        assert runner.process.wait(30) == 0, runner.text()


def test_daemon_that_fails_again_is_shown_with_its_last_lines(runner):
    lock = next(runner.data.glob("nsqd-*"))
    os.kill(runner.daemons["nsqd"], signal.SIGKILL)
    wait_until(lambda: "Press Enter to start" in runner.text(), "the death is reported", 20)
    name = re.findall(r"Press Enter to start (\S+) again", runner.text())[-1]
    folder = runner.data / name
    folder.rename(lock.with_name("aside"))
    folder.write_text("in the way")

    runner.type("\n")

    wait_until(lambda: f"{name} did not start (exit code 1)" in runner.text(), "it says why", 30)
    assert "\n    [nsqd] " in runner.text()
    folder.unlink()
    lock.with_name("aside").rename(folder)
    wait_until(lambda: runner.text().count(f"Press Enter to start {name}") == 2, "it asks again", 20)
    runner.type("\n")
    wait_until(lambda: f"{name} runs again" in runner.text(), "it runs again", 30)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_when_runner_itself_is_killed_its_daemons_stop_too(runner):
    runner.process.kill()
    runner.process.wait()

    runner.wait_until_nothing_is_left()


def test_kept_data_is_there_again_and_fresh_begins_anew(tmp_path):
    def published_and_waiting(*flags: str) -> int:
        runner = Runner(tmp_path, "--no-traffic", *flags)
        waiting = sum(topic["depth"] for topic in runner.topics(4151))
        urllib.request.urlopen(
            f"http://127.0.0.1:{4151 + runner.offset}/pub?topic=kept", data=b"x", timeout=10
        ).close()
        runner.process.terminate()
        assert runner.process.wait(30) == 0, runner.text()
        runner.wait_until_nothing_is_left()
        return waiting

    assert published_and_waiting() == 0
    assert published_and_waiting("--keep") == 1
    assert published_and_waiting() == 2
    assert published_and_waiting("--fresh") == 0


def test_with_sign_in_admin_ui_asks_who_one_is_and_shows_what_their_role_allows(tmp_path):
    runner = Runner(tmp_path, "--sign-in", "--no-traffic")
    try:
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(f"http://127.0.0.1:{4171 + runner.offset}/topics", timeout=10) as answer:
            asked, place = answer.read().decode(), answer.url
        (otto,) = re.findall(r'<a href="([^"]+)">otto</a>', asked)
        with browser.open(urllib.parse.urljoin(place, html.unescape(otto)), timeout=10) as answer:
            page, back = answer.read().decode(), answer.url
    finally:
        runner.process.send_signal(signal.SIGINT)
        code = runner.process.wait(30)

    assert place.startswith(f"http://127.0.0.1:{4180 + runner.offset}/authorize?")
    assert back == f"http://127.0.0.1:{4171 + runner.offset}/topics"
    assert "Signed in as otto" in re.sub(r"<[^>]+>", "", page)
    assert "otto (operator)" in runner.text()
    assert code == 0, runner.text()
