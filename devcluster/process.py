"""One daemon as a child process that cannot outlive the runner."""

import asyncio
import os
import re
import signal
from collections import deque
from pathlib import Path
from typing import Final

from devcluster.layout import DaemonPlan
from nsqcore.process.tied import tie_to_parent

READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 15.0
LAST_LINES: Final = 12
POLL_SECONDS: Final = 0.02

_LISTENING: Final = re.compile(r"(TCP|HTTP): listening on ")


class DaemonFailedError(Exception):
    """A daemon did not start; the text says which, and has its last lines."""


class DaemonProcess:
    """Starts, watches and stops the daemon of a plan; its output goes to a log file."""

    def __init__(self, plan: DaemonPlan, logs: Path) -> None:
        self.plan = plan
        self.log_path = logs / f"{plan.name}.log"
        self._process: asyncio.subprocess.Process | None = None
        self._log_start = 0  # where the output of this start begins

    @property
    def pid(self) -> int:
        """The process id of the last start; 0 before the first."""
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        """Start it and wait until it listens; later starts append to its log. Raises DaemonFailedError."""
        with self.log_path.open("ab" if self.pid else "wb") as log:
            self._log_start = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                *self.plan.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C is for the runner, which stops the daemons in order
                preexec_fn=tie_to_parent(os.getpid()),
            )
        try:
            async with asyncio.timeout(READY_SECONDS):
                while not self._listens():
                    if self._process.returncode is not None:
                        raise self._failure("did not start")
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise self._failure(f"was not ready after {READY_SECONDS:g} s") from None

    async def ended(self) -> str:
        """Wait until the daemon ends without a stop request; return a sentence about it."""
        code = await self._process.wait() if self._process is not None else 0
        # A signal was sent on purpose; a daemon that ends by itself has printed the reason.
        reason = "." if code < 0 else f". Its last lines in {self.log_path}:\n{self._last_lines()}"
        return f"{self.plan.name} (pid {self.pid}) ended with {describe_exit(code)}{reason}"

    async def stop(self) -> str | None:
        """End it and wait; return a sentence if it had to be killed or ended with an error."""
        process = self._process
        if process is None:
            return None
        asked = process.returncode is None
        if asked:
            process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                code = await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            return f"{self.plan.name} did not stop in {STOP_SECONDS:g} s and was killed"
        return f"{self.plan.name} stopped with {describe_exit(code)}" if asked and code else None

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def _last_lines(self) -> str:
        lines = deque(self._output().splitlines(), LAST_LINES)
        return "\n".join(f"    {line}" for line in lines) or "    (nothing)"

    def _output(self) -> str:
        """Return its output since its last start."""
        return self.log_path.read_bytes()[self._log_start :].decode(errors="replace")

    def _listens(self) -> bool:
        listening = {match[1] for match in _LISTENING.finditer(self._output())}
        return listening.issuperset(self.plan.listeners)

    def _failure(self, what: str) -> DaemonFailedError:
        code = self._process.returncode if self._process is not None else None
        how = f" ({describe_exit(code)})" if code is not None else ""
        return DaemonFailedError(
            f"{self.plan.name} {what}{how}. Its last lines in {self.log_path}:\n{self._last_lines()}"
        )


def describe_exit(code: int) -> str:
    """Describe an exit code in words; negative codes are signals."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
