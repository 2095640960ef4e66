"""Daemons and tools forked from a process that has already loaded their code, which is most of a start.

A program started this way is a separate process with its own ``__main__``, flags, environment, files and
signals; it only skips Python's own start. Tests of the start itself have the mark ``executed``. They and the
tests of other clients execute the command, as users do.
"""

import importlib
import json
import os
import pkgutil
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
_OF_DAEMONS: Final = (
    "uvloop",
    "nsqd.cli",
    "nsqd.server.daemon",
    "nsqlookupd.cli",
    "nsqlookupd.daemon",
    "nsqadmin.cli",
    "nsqadmin.daemon",
)
# Warnings of a tool, and of the modules that it imports, are errors.
_FOR_TOOLS: Final = [sys.executable, "-W", "error", "-m"]
_TOOLS: Final = "nsqtools"
_MAX_BYTES: Final = 1 << 18
ROOT: Final = Path(__file__).parents[2]


class Process(Protocol):
    """What a test does with a daemon, forked or not."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


class Forked:
    """A child of the nursery, with the methods of a Popen."""

    def __init__(self, nursery: "Nursery", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._nursery = nursery
        # The handle names this process even if its number was reused.
        self._handle = os.pidfd_open(pid)

    def __del__(self) -> None:
        os.close(self._handle)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""
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

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def readable(fd: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


class Nursery:
    """Forks daemons or tools for one worker of pytest; it ends, and ends them, when the worker ends."""

    def __init__(self, environment: dict[str, str], *, of_tools: bool) -> None:
        self.environment = environment
        self._lock = threading.Lock()
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            python = _FOR_TOOLS if of_tools else [sys.executable, "-m"]
            command = [
                *python,
                "tests.support.nursery",
                str(theirs.fileno()),
                "tools" if of_tools else "daemons",
            ]
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                env=environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
            )

    def start(self, program: str, flags: list[str], folder: Path, files: dict[int, int]) -> Forked:
        """Fork a program in *folder*; *files* maps its file descriptors to ours."""
        asked = {"program": program, "flags": flags, "folder": str(folder), "files": list(files)}
        with self._lock:
            socket.send_fds(self._door, [json.dumps(asked).encode()], list(files.values()))
            return Forked(self, self._answer())

    def exit_code(self, pid: int) -> int:
        with self._lock:
            self._door.send(json.dumps({"ended": pid}).encode())
            return self._answer()

    def end(self) -> None:
        """End the nursery with all processes that it has started, and wait for that."""
        self._door.close()
        self._process.wait(20)

    def _answer(self) -> int:
        said = self._door.recv(_MAX_BYTES)
        if not said:
            raise RuntimeError(f"the nursery ended with {self._process.wait(10)}")
        return int(json.loads(said))


_nurseries: dict[tuple[int, bool], Nursery] = {}
# Tests of the start itself, and stages that start programs as users do, set ``allowed`` to False.
POSSIBLE: Final = hasattr(os, "pidfd_open")
allowed = POSSIBLE


def start(command: list[str], environment: dict[str, str], folder: Path, output: int) -> Process:
    """Start the command in the folder, with both outputs to the file descriptor *output*.

    A daemon of ours is forked, unless its environment differs from the nursery's.
    """
    if allowed and command[:2] == [sys.executable, "-m"] and command[2] in PROGRAMS:
        nursery = _nursery(environment, of_tools=False)
        if nursery is not None:
            return nursery.start(command[2], command[3:], folder, {1: output, 2: output})
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, env=environment
    )


def start_tool(
    command: list[str], environment: dict[str, str], folder: Path, files: dict[int, int]
) -> Forked | None:
    """Fork a tool of ours; return None if it must be executed."""
    if allowed and command[:4] == _FOR_TOOLS and command[4].startswith(f"{_TOOLS}."):
        nursery = _nursery(environment, of_tools=True)
        if nursery is not None:
            return nursery.start(command[4], command[5:], folder, files)
    return None


def _nursery(environment: dict[str, str], *, of_tools: bool) -> Nursery | None:
    """Return the nursery of this process; None if *environment* differs from the nursery's."""
    key = os.getpid(), of_tools
    nursery = _nurseries.get(key)
    if nursery is None:
        nursery = _nurseries[key] = Nursery(environment, of_tools=of_tools)
    same = _beside_pytest(nursery.environment) == _beside_pytest(environment)
    return nursery if same else None


def end_all() -> None:
    """End all nurseries and wait for them, so that their processor time counts for the parent."""
    for (pid, _), nursery in _nurseries.items():
        if pid == os.getpid():
            nursery.end()
    _nurseries.clear()


def _beside_pytest(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}


def _serve(door: socket.socket) -> dict[str, Any]:
    """Fork on demand. Return only in a child, with the request; the nursery itself exits here."""
    children: set[int] = set()
    while True:
        said, files, _, _ = socket.recv_fds(door, _MAX_BYTES, 3)
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
            for theirs, mine in zip(asked["files"], files, strict=True):
                os.dup2(mine, theirs)
            door.close()
            return dict(asked)
        for file in files:
            os.close(file)
        children.add(pid)
        door.send(json.dumps(pid).encode())
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os._exit(0)


def _modules(kind: str) -> list[str]:
    if kind == "daemons":
        return list(_OF_DAEMONS)
    folder = str(ROOT / _TOOLS)
    names = [module.name for module in pkgutil.walk_packages([folder], f"{_TOOLS}.")]
    # Includes modules that tools import only when needed; Kubernetes is left out, because only pods use it.
    return [
        *("uvloop", "nsqclient._consumer", "nsqclient._producer", "nsqclient._http", "nsqcore.cluster.http"),
        *(name for name in names if not name.endswith("__main__") and not name.startswith(f"{_TOOLS}.kube")),
    ]


def _main() -> None:
    for name in _modules(sys.argv[2]):
        importlib.import_module(name)
    asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    # From here on this is a child, which keeps only the loaded code of the nursery.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(asked["folder"])
    sys.path[0] = asked["folder"]
    sys.argv = [asked["program"], *asked["flags"]]
    runpy.run_module(asked["program"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
