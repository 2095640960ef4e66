"""The nsqlookupd under test: start it, restart it on the same ports, ask and measure it."""

import asyncio
import resource
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bench.cpu import process_seconds
from bench.ports import free_port

START_TIMEOUT_S: Final = 20.0


class LookupdServer:
    def __init__(self, command: Sequence[str]) -> None:
        self.tcp = ("127.0.0.1", free_port())
        self.http = ("127.0.0.1", free_port())
        self._command = [
            *command,
            f"--tcp-address={self.tcp[0]}:{self.tcp[1]}",
            f"--http-address={self.http[0]}:{self.http[1]}",
        ]
        self._process: subprocess.Popen[bytes] | None = None
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(self.http) == 0:
                    return
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise SystemExit(f"{self._command[0]} does not start")
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(START_TIMEOUT_S)
            self._process = None

    async def get(self, path: str) -> bytes:
        """Send one request on a new connection, as consumers do, and return the body."""
        reader, writer = await asyncio.open_connection(*self.http, limit=1 << 24)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                raise SystemExit(f"{path}: {head!r}")
            return await reader.read()
        finally:
            writer.close()

    def cpu_seconds(self) -> float:
        return process_seconds(self._pid)

    def peak_memory_mib(self) -> float:
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))

    @property
    def _pid(self) -> int:
        if self._process is None:
            raise SystemExit("nsqlookupd does not run")
        return self._process.pid
