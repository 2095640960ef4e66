"""Real daemons as subprocesses on free ports, each with its own folder; killed, restarted and cleaned up."""

import functools
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import pytest

from bench.ports import free_port, reserve
from load.ports import LAST_PORT, dice, is_free
from tests.support import beside, nursery
from tests.support.nursery import ROOT, Process
from tests.support.waiting import wait_until

READY_SECONDS: Final = 20
STOP_SECONDS: Final = 20

CLUSTER_PORTS: Final = (4150, 4151, 4250, 4251, 4160, 4161, 4171)  # of nsq-cluster, without its offset

GO_BIN: Final = "NSQ_GO_BIN"
"""The environment variable with the folder of the original's programs."""

MEASURED: Final = "COVERAGE_PROCESS_CONFIG" in os.environ
"""Whether coverage.py runs (make coverage). A killed process writes none."""

_LISTENING: Final = re.compile(r"(TCP|HTTPS?): listening on (\S+):(\d+)")


def listens(port: int) -> bool:
    """Say whether a process accepts connections on this port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def ignores_or_handles(pid: int, number: signal.Signals) -> bool:
    """Say whether this signal does not end the process (any more) as the system does by default."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    masks = (int(mask, 16) for mask in re.findall(r"^Sig(?:Ign|Cgt):\s+(\w+)$", status, re.MULTILINE))
    return any(mask >> (number - 1) & 1 for mask in masks)


def free_port_offset(ports: Sequence[int]) -> int:
    """Return a number that can be added to all these ports, and reserve the sums."""
    highest = LAST_PORT - max(ports)
    return next(
        offset
        for offset in iter(lambda: dice.randint(1000, highest), None)
        if all(is_free(port + offset) and reserve(port + offset) for port in ports)
    )


class Daemon:
    """One daemon process. Its first start takes free ports, and later starts use the same ports."""

    def __init__(self, program: str, folder: Path, flags: list[str], listeners: tuple[str, ...]) -> None:
        self.program = program
        self.folder = folder
        self.flags = flags
        self.listeners = listeners
        self.ports: dict[str, int] = dict.fromkeys(listeners, 0)
        self.process: Process | None = None
        self._log_path = folder / f"{program}.log"
        self._log_offset = 0  # where the output of the current start begins

    # --- addresses

    @property
    def tcp_port(self) -> int:
        return self.ports["tcp"]

    @property
    def http_port(self) -> int:
        return self.ports["http"]

    @property
    def tcp_address(self) -> str:
        return f"127.0.0.1:{self.tcp_port}"

    @property
    def http_address(self) -> str:
        return f"127.0.0.1:{self.http_port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.program} was not started"
        return self.process.pid

    # --- life

    def spawn(self) -> Self:
        """Start the process without waiting, for tests that expect it to refuse to run."""
        assert self.process is None or self.process.poll() is not None, f"{self.program} runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            self._log_offset = log.tell()
            command = [*self.command(), *self._listen_flags(), *self.flags]
            # Reading the system's certificates takes a sixth of a start, and no test trusts them.
            environment = {"SSL_CERT_FILE": os.devnull, **os.environ, "PYTHONPATH": str(ROOT)}
            self.process = nursery.start(command, environment, self.folder, log.fileno())
        return self

    def start(self) -> Self:
        """Start the process and wait until it says that it listens."""
        while True:
            given = dict(self.ports)
            self.ports = {kind: port or free_port() for kind, port in given.items()}
            self.spawn()
            try:
                wait_until(self._is_listening, f"{self.program} listens", READY_SECONDS)
            except AssertionError:
                # Another test may have taken the same free port a moment earlier.
                if self.ports == given or "address already in use" not in self.logs():
                    raise
                self.ports = given
            else:
                return self

    def kill(self) -> int:
        """Send SIGKILL, so that it can neither log nor save anything; wait, and return the exit code."""
        return self._signal(signal.SIGKILL)

    def stop(self) -> int:
        """Send SIGTERM, wait, and return the exit code."""
        return self._signal(signal.SIGTERM)

    def restart(self) -> Self:
        """Start it again on the same ports and folder, after a stop if it still runs."""
        if self.is_running():
            self.stop()
        return self.start()

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Wait until it ends by itself; returns the exit code."""
        assert self.process is not None
        return self.process.wait(seconds)

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def logs(self) -> str:
        """Return what the current (or last) start has printed so far, stdout and stderr together."""
        with self._log_path.open("rb") as log:
            log.seek(self._log_offset)
            return log.read().decode(errors="replace")

    def forget_logs(self) -> None:
        """Let :meth:`logs` begin here, for a daemon that several tests share."""
        self._log_offset = self._log_path.stat().st_size

    # --- HTTP

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Send one HTTP request on a new connection; return status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=10)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def is_ready(self) -> bool:
        """Say whether ``/ready`` answers with 200; nothing that listens is not ready."""
        try:
            return self.request("GET", "/ready")[0] == 200
        except OSError:
            return False

    def get(self, path: str) -> Any:
        """Return the decoded JSON answer of a GET that must succeed."""
        status, body = self.request("GET", path)
        assert status == 200, f"GET {path}: {status} {body!r}"
        return json.loads(body)

    def post(self, path: str, body: bytes = b"") -> bytes:
        """Return the raw answer of a POST that must succeed."""
        status, answer = self.request("POST", path, body)
        assert status == 200, f"POST {path}: {status} {answer!r}"
        return answer

    def create(self, topic: str, channel: str) -> None:
        """Create a topic and a channel of it at an nsqd or an nsqlookupd."""
        self.post(f"/topic/create?topic={topic}")
        self.post(f"/channel/create?topic={topic}&channel={channel}")

    # --- inside

    def command(self) -> list[str]:
        return [sys.executable, "-m", self.program]

    def _listen_flags(self) -> list[str]:
        flags = [f"--{kind}-address=127.0.0.1:{port}" for kind, port in self.ports.items()]
        has_certificate = any(flag.startswith("--tls-cert=") for flag in self.flags)
        if has_certificate and not any("https-address" in flag for flag in (*flags, *self.flags)):
            # With a certificate a daemon also opens this port, and another test may have taken the usual one.
            flags.append("--https-address=127.0.0.1:0")
        return flags

    def _is_listening(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"{self.program} ended with {self.process.returncode}:\n{self.logs()}")
        seen = {kind.lower(): int(port) for kind, _, port in _LISTENING.findall(self.logs())}
        if not all(kind in seen for kind in self.listeners):
            return False
        self.ports.update({kind: seen[kind] for kind in self.listeners})
        return True

    def _signal(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.wait()


class GoDaemon(Daemon):
    """The original program, if it is installed; it is started and used like ours."""

    def command(self) -> list[str]:
        path = go_program(self.program)
        if path is None:
            pytest.skip(f"no Go {self.program}: none on PATH, and {GO_BIN} names no folder with one")
        return [path]


def program(name: str) -> list[str]:
    """Return how a program is executed: ours, unless the original is under test."""
    return (Daemon if beside.OURS else GoDaemon)(name, Path(), [], ()).command()


@functools.cache
def go_program(name: str) -> str | None:
    """The path of an original NSQ program, or None: in the folder that GO_BIN names, or on PATH."""
    found = shutil.which(name, path=os.environ.get(GO_BIN) or os.environ.get("PATH"))
    if found is None:
        return None
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    return found if "built w/go" in version else None  # ours may also be on PATH


class Cluster:
    """The daemons of one test; those that still run at its end are killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemons: list[Daemon] = []

    def nsqlookupd(self, *flags: str) -> Daemon:
        """Return a running nsqlookupd."""
        return self.daemon("nsqlookupd", ["--broadcast-address=127.0.0.1", *flags]).start()

    def nsqd(
        self,
        *flags: str,
        lookupds: list[Daemon] | None = None,
        listeners: tuple[str, ...] = ("tcp", "http"),
    ) -> Daemon:
        """Return a running nsqd, registered with *lookupds*, or else with all that run in this cluster."""
        if lookupds is None:
            lookupds = [daemon for daemon in self.daemons if daemon.program == "nsqlookupd"]
        announced = [f"--lookupd-tcp-address={daemon.tcp_address}" for daemon in lookupds]
        daemon = self.daemon("nsqd", ["--broadcast-address=127.0.0.1", *announced, *flags], listeners)
        daemon.flags.append(f"--data-path={daemon.folder}")
        return daemon.start()

    def go_nsqd(self, *flags: str) -> Daemon:
        """Return a running nsqd of the original; skip the test if it is not installed."""
        daemon = self.daemon("nsqd", ["--broadcast-address=127.0.0.1", *flags], kind=GoDaemon)
        daemon.flags.append(f"--data-path={daemon.folder}")
        return daemon.start()

    def nsqadmin(self, *flags: str) -> Daemon:
        """Return a running nsqadmin that asks the nsqlookupds of this cluster, unless flags say otherwise."""
        if not any("lookupd-http-address" in flag or "nsqd-http-address" in flag for flag in flags):
            flags += tuple(
                f"--lookupd-http-address={daemon.http_address}"
                for daemon in self.daemons
                if daemon.program == "nsqlookupd"
            )
        if beside.OURS and not any("collect-interval" in flag for flag in flags):
            # Statistics are collected often, so that they are current for tests that look immediately.
            flags += ("--collect-interval=50ms",)
        return self.daemon("nsqadmin", list(flags), listeners=("http",)).start()

    def daemon(
        self,
        program: str,
        flags: list[str],
        listeners: tuple[str, ...] = ("tcp", "http"),
        kind: type[Daemon] = Daemon if beside.OURS else GoDaemon,
    ) -> Daemon:
        """Return a daemon that is not started yet, for tests of refusals and of flags."""
        folder = self.folder / f"{program}-{len(self.daemons)}"
        folder.mkdir(parents=True)
        daemon = kind(program, folder, flags, listeners)
        self.daemons.append(daemon)
        return daemon

    def close(self) -> None:
        for daemon in reversed(self.daemons):
            if daemon.is_running() and MEASURED:
                assert daemon.process is not None
                daemon.process.send_signal(signal.SIGCONT)
                with suppress(subprocess.TimeoutExpired):
                    daemon.stop()
            if daemon.is_running():
                daemon.kill()
