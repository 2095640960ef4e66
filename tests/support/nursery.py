"""Daemons forked from a process that has read their code already, because reading it is most of a start.

What is started this way is a process of its own with its own ``__main__``, flags, environment, files and
signals; it only skips what Python does before. Tests of the start itself bear the mark ``executed``; they and
those of the slow stages start the command, as its users do.
"""

import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final, Protocol

PROGRAMS: Final = ("nsqd", "nsqlookupd", "nsqadmin")
_MODULES: Final = (
    "uvloop",
    "nsqd.cli",
    "nsqd.server.daemon",
    "nsqlookupd.cli",
    "nsqlookupd.daemon",
    "nsqadmin.cli",
    "nsqadmin.daemon",
)
_MOST_BYTES: Final = 1 << 18
ROOT: Final = Path(__file__).parents[2]


class Process(Protocol):
    """What a test does with a daemon, forked or not."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...


class Forked:
    """A child of the nursery, with the methods of a Popen."""

    def __init__(self, nursery: "Nursery", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._nursery = nursery
        # It names this process even when its number belongs to another one.
        self._handle = os.pidfd_open(pid)

    def __del__(self) -> None:
        os.close(self._handle)

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self.returncode is None and readable(self._handle, 0):
            self.returncode = self._nursery.exit_code(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not readable(self._handle, timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, sig)


def readable(fd: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


class Nursery:
    """Forks daemons, one for each worker of pytest; it ends, and ends them, when that does."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self._lock = threading.Lock()
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.support.nursery", str(theirs.fileno())]
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                env=environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
            )

    def start(self, program: str, flags: list[str], folder: Path, output: int) -> Forked:
        """The daemon with these flags in this folder; both its outputs go to the file descriptor."""
        asked = {"program": program, "flags": flags, "folder": str(folder)}
        with self._lock:
            socket.send_fds(self._door, [json.dumps(asked).encode()], [output])
            return Forked(self, self._answer())

    def exit_code(self, pid: int) -> int:
        with self._lock:
            self._door.send(json.dumps({"ended": pid}).encode())
            return self._answer()

    def _answer(self) -> int:
        said = self._door.recv(_MOST_BYTES)
        if not said:
            raise RuntimeError(f"the nursery ended with {self._process.wait(10)}")
        return int(json.loads(said))


_nurseries: dict[int, Nursery] = {}
# Tests of the start itself, and of the slow stages, switch it off.
POSSIBLE: Final = hasattr(os, "pidfd_open")
allowed = POSSIBLE


def start(command: list[str], environment: dict[str, str], folder: Path, output: int) -> Process:
    """Start the command in the folder, with both its outputs to the file descriptor.

    A daemon of ours is forked, but where the environment has something that is read before a program begins.
    """
    if allowed and command[:2] == [sys.executable, "-m"] and command[2] in PROGRAMS:
        nursery = _nurseries.get(os.getpid())
        if nursery is None:
            nursery = _nurseries[os.getpid()] = Nursery(environment)
        if _beside_pytest(nursery.environment) == _beside_pytest(environment):
            return nursery.start(command[2], command[3:], folder, output)
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, env=environment
    )


def _beside_pytest(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}


def _serve(door: socket.socket) -> dict[str, Any]:
    """Fork on demand. Returns in a child, with what it was asked to be; never in the nursery itself."""
    children: set[int] = set()
    while True:
        said, files, _, _ = socket.recv_fds(door, _MOST_BYTES, 1)
        if not said:
            break
        asked = json.loads(said)
        if pid := asked.get("ended"):
            _, status = os.waitpid(pid, 0)
            children.discard(pid)
            door.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = os.fork()
        if pid == 0:
            os.dup2(files[0], 1)
            os.dup2(files[0], 2)
            return dict(asked)
        os.close(files[0])
        children.add(pid)
        door.send(json.dumps(pid).encode())
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _main() -> None:
    for name in _MODULES:
        importlib.import_module(name)
    asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    # A child from here on: nothing of the nursery but what it has read.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(asked["folder"])
    sys.path[0] = asked["folder"]
    sys.argv = [asked["program"], *asked["flags"]]
    runpy.run_module(asked["program"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
