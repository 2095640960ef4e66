"""One daemon as a child process that cannot outlive the runner."""

import asyncio
import ctypes
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from devcluster.layout import DaemonPlan

READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 15.0
LAST_LINES: Final = 12
POLL_SECONDS: Final = 0.02

_LISTENING: Final = re.compile(r"(TCP|HTTP): listening on ")
_PR_SET_PDEATHSIG: Final = 1


class DaemonFailedError(Exception):
    """A daemon did not start, or ended when nobody asked it to; the text says which and what it said last."""


class DaemonProcess:
    """Starts, watches and stops the daemon of a plan; its output goes to a log file."""

    def __init__(self, plan: DaemonPlan, logs: Path) -> None:
        self.plan = plan
        self.log_path = logs / f"{plan.name}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it and return when it says that it listens."""
        with self.log_path.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.plan.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C is for the runner, which stops the daemons in order
                preexec_fn=_tie_to_parent(os.getpid()),
            )
        try:
            async with asyncio.timeout(READY_SECONDS):
                while not self._listens():
                    if self._process.returncode is not None:
                        raise self._failure("did not start")
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise self._failure(f"was not ready after {READY_SECONDS:g} s") from None

    async def watch(self) -> None:
        """Wait for the end nobody asked for, and raise what is known about it."""
        if self._process is not None:
            await self._process.wait()
        raise self._failure("ended unexpectedly")

    async def stop(self) -> str | None:
        """End it and wait; returns a sentence when it had to be killed or did not end well."""
        process = self._process
        if process is None:
            return None
        asked = process.returncode is None
        if asked:
            process.terminate()
        try:
            code = await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
            return f"{self.plan.name} did not stop in {STOP_SECONDS:g} s and was killed"
        return f"{self.plan.name} stopped with {describe_exit(code)}" if asked and code else None

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def last_lines(self) -> list[str]:
        with self.log_path.open(errors="replace") as log:
            return [line.rstrip("\n") for line in deque(log, LAST_LINES)]

    def _listens(self) -> bool:
        said = {match[1] for match in _LISTENING.finditer(self.log_path.read_text(errors="replace"))}
        return said.issuperset(self.plan.listeners)

    def _failure(self, what: str) -> DaemonFailedError:
        code = self._process.returncode if self._process is not None else None
        how = f" ({describe_exit(code)})" if code is not None else ""
        lines = "\n".join(f"    {line}" for line in self.last_lines()) or "    (nothing)"
        return DaemonFailedError(f"{self.plan.name} {what}{how}. Its last lines in {self.log_path}:\n{lines}")


def describe_exit(code: int) -> str:
    """An exit code in words; negative ones are signals."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _tie_to_parent(parent: int) -> Callable[[], None] | None:
    """What the child does before it becomes the daemon: ask to be stopped when the runner dies."""
    if sys.platform != "linux":
        return None  # elsewhere only an orderly end stops the daemons
    libc = ctypes.CDLL(None)

    def tie() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the call
            os._exit(1)

    return tie
