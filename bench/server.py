"""The nsqd under test: start it, ask, measure and stop it."""

import http.client
import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.cpu import process_seconds
from bench.load import Address, LoadError
from bench.ports import free_port

OURS: Final = f"{sys.executable} -m nsqd --tcp-address {{tcp}} --http-address {{http}} --data-path {{data}}"
NULL: Final = f"{sys.executable} -m bench.null --tcp-address {{tcp}} --http-address {{http}}"
START_TIMEOUT: Final = 60.0
STOP_TIMEOUT: Final = 30.0
_TRIES: Final = 4


class PortTakenError(LoadError):
    """Another program began to listen on the port before the server did."""


@dataclass(frozen=True)
class Server:
    """One nsqd, by its addresses and its process."""

    name: str
    tcp: Address
    http: Address
    pid: int
    # Seconds until it answered, if it was started for the measurement.
    started_s: float = 0.0
    null: bool = False

    def cpu_seconds(self) -> float:
        """Return user and system time of the whole process so far, in seconds."""
        return process_seconds(self.pid)

    def peak_memory_mib(self) -> float:
        return self._memory_mib("VmHWM:")

    def memory_mib(self) -> float:
        """Return the resident memory now, in MiB."""
        return self._memory_mib("VmRSS:")

    def _memory_mib(self, field: str) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) / 1024
        return 0.0

    def ask(self, method: str, path: str, body: bytes | None = None, *, timeout: float = 60) -> bytes:
        if self.null:
            return b""
        conn = http.client.HTTPConnection(*self.http, timeout=timeout)
        try:
            conn.request(method, path, body)
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
        if self.null:
            return {}
        version = json.loads(self.ask("GET", "/info"))["version"]
        return {"version": version, "peak_mib": round(self.peak_memory_mib())}


def parse_address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host or "127.0.0.1", int(port)


@dataclass(frozen=True)
class Program:
    """How a server is started: a command line with placeholders for its addresses and data folder."""

    name: str
    template: str
    data_root: str | None = None
    # The null server only answers; it has no topics and no counters.
    null: bool = False

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Yield a data folder for several servers in turn; remove it afterwards."""
        data = Path(tempfile.mkdtemp(prefix="nsq-bench-", dir=self.data_root))
        try:
            yield data
        finally:
            shutil.rmtree(data, ignore_errors=True)

    @contextmanager
    def serving(
        self, flags: Sequence[str] = (), data: Path | None = None, *, stop: signal.Signals = signal.SIGTERM
    ) -> Iterator[Server]:
        """Run a server on free ports, with *data* or a new folder, until the end of the block."""
        with ExitStack() as stack:
            folder = data or stack.enter_context(self.folder())
            for tries_left in reversed(range(_TRIES)):
                tcp, http_address = free_address(), free_address()
                command = self.template.format(
                    tcp=f"{tcp[0]}:{tcp[1]}", http=f"{http_address[0]}:{http_address[1]}", data=folder
                )
                try:
                    server = stack.enter_context(
                        self._running([*shlex.split(command), *flags], folder, tcp, http_address, stop)
                    )
                except PortTakenError:
                    # A command may also name a port itself, which no other choice makes free.
                    if not tries_left:
                        raise
                else:
                    break
            yield server

    @contextmanager
    def _running(
        self, words: list[str], folder: Path, tcp: Address, http_address: Address, stop: signal.Signals
    ) -> Iterator[Server]:
        """Run one process until the end of the block. Raises LoadError if it does not answer."""
        log_path = folder / "server.log"
        began = time.monotonic()
        with log_path.open("wb") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_for_ping(process, http_address, log_path)
            yield Server(self.name, tcp, http_address, process.pid, time.monotonic() - began, self.null)
        finally:
            process.send_signal(stop)
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


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
            kind = PortTakenError if "address already in use" in tail else LoadError
            raise kind(f"{shlex.join(map(str, process.args))!r} does not answer:\n{tail}")  # type: ignore[arg-type]
        time.sleep(0.005)


def free_address() -> Address:
    return "127.0.0.1", free_port()
