"""The command line tools as processes: run to their end, or left running and killed."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

from tests.support.waiting import wait_until

PROJECT: Final = Path(__file__).parents[2]

GO_TOOLS: Final = "NSQ_GO_TOOLS"
"""The environment variable with the folder of the original's tools."""


def command(tool: str) -> list[str]:
    """How our own tool is started."""
    return [sys.executable, "-W", "error", "-m", f"nsqtools.{tool}"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PROJECT)}


def original(tool: str) -> str | None:
    """The path of the original's tool, or None where there is none."""
    if folder := os.environ.get(GO_TOOLS):
        found = shutil.which(tool, path=folder)
        assert found, f"{GO_TOOLS} is {folder}, where there is no {tool}"
        return found
    found = shutil.which(tool)
    # Our own may stand on PATH under the same name; it is a script, the original is not.
    if found and Path(found).read_bytes()[:2] != b"#!":
        return found
    return None


def run_tool(
    tool: str | list[str], *flags: str, stdin: bytes = b"", seconds: float = 30, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a tool to its end."""
    started = command(tool) if isinstance(tool, str) else tool
    return subprocess.run(
        [*started, *flags],
        input=stdin,
        capture_output=True,
        timeout=seconds,
        check=False,
        cwd=cwd,
        env=environment(),
    )


class Tool:
    """A running tool; its stdout and stderr are files, so that nothing is lost when it is killed."""

    def __init__(self, folder: Path, tool: str | list[str], *flags: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        started = command(tool) if isinstance(tool, str) else tool
        number = len(list(folder.glob("*.err")))
        self.out, self.err = folder / f"{number}.out", folder / f"{number}.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [*started, *flags], stdin=subprocess.PIPE, stdout=out, stderr=err, env=environment()
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        assert self.process.stdin is not None
        self.process.stdin.close()

    def printed(self) -> bytes:
        return self.out.read_bytes()

    def said(self) -> str:
        return self.err.read_text(errors="replace")

    def until_said(self, words: str, seconds: float = 20) -> None:
        """Wait for words on stderr."""
        wait_until(lambda: words in self.said() or self._ended(words), f"it says {words!r}", seconds)

    def _ended(self, words: str) -> bool:
        if self.process.poll() is None:
            return False
        if words in self.said():
            return True
        raise AssertionError(f"ended with {self.process.returncode} before {words!r}:\n{self.said()}")

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 40) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def kill(self) -> None:
        """SIGKILL: no chance to save anything."""
        self.process.kill()
        self.process.wait(20)
