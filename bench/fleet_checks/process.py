"""Daemons on free ports of loopback: start them, ask them, and measure them from outside."""

import http.client
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.cpu import process_seconds


def _free_ports() -> Iterator[int]:
    """Yield free ports below the range of outgoing connections, because a hundred daemons start slowly."""
    first = random.randrange(12_000, 28_000)
    for port in range(first, 32_000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                yield port


_ports = _free_ports()


class Process:
    """A daemon on free ports of loopback."""

    def __init__(self, program: str, *flags: str, listeners: tuple[str, ...] = ("tcp", "http")) -> None:
        self.ports = {kind: next(_ports) for kind in listeners}
        listen = [f"--{kind}-address=127.0.0.1:{port}" for kind, port in self.ports.items()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", program, "--log-level=warn", *listen, *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def address(self, kind: str) -> str:
        return f"127.0.0.1:{self.ports[kind]}"

    def wait(self) -> None:
        deadline = time.monotonic() + 120
        while True:
            try:
                if ask(self.address("http"), "/ping")[0] == 200:
                    return
            except OSError:
                pass
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise SystemExit("a daemon does not start")
            time.sleep(0.05)

    def cpu_s(self) -> float:
        return process_seconds(self._process.pid)

    def memory_mb(self) -> float:
        return memory_mb(self._process.pid)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def memory_mb(pid: int | str = "self") -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) * 1024 / 1e6


def ask(address: str, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def topic_name(number: int) -> str:
    return f"topic-{number:04}"


def wait_until(condition: Callable[[], object], what: str, seconds: float = 120) -> None:
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise SystemExit(f"waited in vain until {what}")
        time.sleep(0.05)
