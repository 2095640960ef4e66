"""A broker's processes on loopback: start, measure, stop and continue them, end them by their ids."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.load import Address, LoadError
from bench.server import free_address

START_S: Final = 90.0
STOP_S: Final = 20.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Command:
    """A command to start: its words, and additional environment variables."""

    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)


# Takes the data folder and the port. The last command is the broker; the others are its helpers.
Commands = Callable[[Path, int], list[Command]]


class Running:
    """A broker and all processes of its session."""

    def __init__(
        self, commands: list[Command], address: Address, folder: Path, ready: Callable[[Address], None]
    ) -> None:
        self.address = address
        self._commands, self._folder, self._ready = commands, folder, ready
        self._log = (folder / "server.log").open("ab")
        self._helpers = [self._popen(command) for command in commands[:-1]]
        self._main = self._popen(commands[-1])

    def wait(self, seconds: float = START_S) -> None:
        """Wait until the broker takes work. Raises LoadError."""
        deadline = time.monotonic() + seconds
        while True:
            with suppress(OSError, LoadError):
                self._ready(self.address)
                return
            if self._main.poll() is not None or time.monotonic() > deadline:
                tail = Path(self._log.name).read_text(errors="replace")[-1500:]
                raise LoadError(f"{' '.join(self._commands[-1].words)} takes no work:\n{tail}")
            time.sleep(0.01)

    def cpu_seconds(self) -> float:
        """Return user and system time of the whole session so far, in seconds."""
        return sum(int(one[11]) + int(one[12]) for one in self._stats().values()) / _TICKS

    def memory_mib(self) -> float:
        return sum(int(one[21]) for one in self._stats().values()) * _PAGE / (1 << 20)

    def hold(self) -> None:
        """Stop the processes until :meth:`go_on`, so that an idle broker does not slow the measured one."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill with SIGKILL, as the kernel does when memory is short, so no handler runs."""
        _kill(self._main)

    def start_again(self) -> None:
        self._main = self._popen(self._commands[-1])

    def stop(self) -> None:
        self.go_on()
        for process in (self._main, *reversed(self._helpers)):
            session = _session(process.pid)
            if process.poll() is None:
                process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            # Processes that a start script has left behind.
            deadline = time.monotonic() + STOP_S
            while session and time.monotonic() < deadline:
                session = _session(process.pid)
                time.sleep(0.02)
            _kill(process)
        self._log.close()

    def _popen(self, command: Command) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            command.words,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=self._folder,
            env=os.environ | command.environment,
            start_new_session=True,
        )

    def _stats(self) -> dict[int, list[str]]:
        return _session(self._main.pid)

    def _signal(self, which: signal.Signals) -> None:
        _signal(self._main, which)


def _signal(leader: "subprocess.Popen[bytes]", which: signal.Signals) -> None:
    for pid in _session(leader.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, which)


def _kill(leader: "subprocess.Popen[bytes]") -> None:
    """Kill all processes of the session, and return when they have ended."""
    _signal(leader, signal.SIGKILL)
    leader.wait()
    # The children end a little later, and hold the port until then; one may have been started just now.
    while _session(leader.pid):
        _signal(leader, signal.SIGKILL)
        time.sleep(0.001)


def _session(leader: int) -> dict[int, list[str]]:
    """Return the fields after the name in /proc/PID/stat of every live process of the session."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] not in "ZX":
                    found[int(entry.name)] = fields
    return found


@contextmanager
def running(commands: Commands, ready: Callable[[Address], None], folder: Path) -> Iterator[Running]:
    """Run a broker on *folder* and a free port of loopback, until the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    address = free_pair()
    one = Running(commands(folder, address[1]), address, folder, ready)
    try:
        one.wait()
        yield one
    finally:
        one.stop()


def free_pair() -> Address:
    """Return the address of a free port whose next port is also free."""
    while True:
        host, port = free_address()
        with socket.socket() as probe, suppress(OSError, OverflowError):
            probe.bind((host, port + 1))
            return host, port


def flushes(folder: Path) -> int | None:
    """Return how often the disk of *folder* was flushed; None if the kernel does not count that."""
    device = folder.stat().st_dev
    name = [str(os.major(device)), str(os.minor(device))]
    for line in Path("/proc/diskstats").read_text().splitlines():
        fields = line.split()
        if fields[:2] == name and len(fields) > 18:
            return int(fields[18])
    return None
