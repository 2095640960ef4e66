"""The nsqd under test: started from a command line or found at an address, asked, measured, stopped."""

import http.client
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.load import Address, LoadError

OURS: Final = (
    f"{sys.executable} -m nsqd --tcp-address {{tcp}} --http-address {{http}} --data-path {{data}}"
    " --mem-queue-size {mem}"
)
START_TIMEOUT: Final = 20.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_LISTENING: Final = "0A"


@dataclass(frozen=True)
class Server:
    """One nsqd, by its addresses and its process."""

    name: str
    tcp: Address
    http: Address
    pid: int

    def cpu_seconds(self) -> float:
        """User and system time of the whole process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def peak_memory_mib(self) -> float:
        return self._memory_mib("VmHWM:")

    def memory_mib(self) -> float:
        """What is resident now."""
        return self._memory_mib("VmRSS:")

    def _memory_mib(self, field: str) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) / 1024
        return 0.0

    def ask(self, method: str, path: str) -> bytes:
        conn = http.client.HTTPConnection(*self.http, timeout=30)
        try:
            conn.request(method, path)
            answer = conn.getresponse()
            body = answer.read()
        finally:
            conn.close()
        if answer.status != 200:
            raise LoadError(f"{method} {path}: {answer.status} {body[:200]!r}")
        return body

    def topic_stats(self, topic: str) -> dict[str, Any]:
        stats = json.loads(self.ask("GET", f"/stats?format=json&include_clients=false&topic={topic}"))
        topics: list[dict[str, Any]] = stats["topics"]
        if len(topics) != 1:
            raise LoadError(f"topic {topic} is listed {len(topics)} times")
        return topics[0]

    def about(self) -> dict[str, Any]:
        version = json.loads(self.ask("GET", "/info"))["version"]
        return {"version": version, "peak_mib": round(self.peak_memory_mib())}


def parse_address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host or "127.0.0.1", int(port)


def found_at(name: str, tcp: Address, http_address: Address, pid: int | None) -> Server:
    """A server that runs already; without a pid, the local process that listens on its port."""
    server = Server(name, tcp, http_address, pid if pid is not None else _listener(tcp[1]))
    server.ask("GET", "/ping")
    return server


@contextmanager
def started(name: str, template: str, mem_queue_size: int, data_root: str | None) -> Iterator[Server]:
    """Start a server on free ports with its data in a new folder; at the end both are gone."""
    data = tempfile.mkdtemp(prefix="nsq-bench-", dir=data_root)
    tcp, http_address = free_address(), free_address()
    values = {
        "tcp": f"{tcp[0]}:{tcp[1]}",
        "http": f"{http_address[0]}:{http_address[1]}",
        "data": data,
        "mem": mem_queue_size,
    }
    log_path = Path(data, "server.log")
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            shlex.split(template.format(**values)), stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_for_ping(process, http_address, log_path)
        yield Server(name, tcp, http_address, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(data, ignore_errors=True)


def wait_for_ping(
    process: subprocess.Popen[bytes], address: Address, log: Path, seconds: float = START_TIMEOUT
) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with suppress(OSError, http.client.HTTPException, LoadError):
            Server("", address, address, process.pid).ask("GET", "/ping")
            return
        if process.poll() is not None or time.monotonic() > deadline:
            tail = log.read_text(errors="replace")[-1500:]
            raise LoadError(f"{shlex.join(map(str, process.args))!r} does not answer:\n{tail}")  # type: ignore[arg-type]
        time.sleep(0.05)


def free_address() -> Address:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return "127.0.0.1", int(probe.getsockname()[1])


def _listener(port: int) -> int:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                if any(str(fd.readlink()) in inodes for fd in (process / "fd").iterdir()):
                    return int(process.name)
    raise LoadError(f"no process of this machine was found listening on port {port}; give its pid")
