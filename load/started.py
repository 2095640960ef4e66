"""A separate cluster for one run: nsqlookupd, some nsqd, nsqadmin if wanted; on free ports."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from load.ports import free_port
from nsqcore.process.tied import tie_to_parent

READY_SECONDS: Final = 60
STOP_SECONDS: Final = 20
# How often other ports are tried when another program has taken the first ones.
_TRIES: Final = 4
_LISTENING: Final = re.compile(r"(TCP|HTTP): listening on")


class NotStarted(Exception):
    """A daemon did not start; the text contains its last log lines."""


class StartedDaemon:
    """A process that takes free ports and uses the same ports at later starts."""

    def __init__(
        self,
        program: str,
        folder: Path,
        flags: list[str],
        listeners: tuple[str, ...],
        find_port: Callable[[], int] = free_port,
    ) -> None:
        folder.mkdir(parents=True)
        self.name = folder.name
        self._program = program
        self._flags = flags
        self._listeners = listeners
        self._find_port = find_port
        self._ports = dict.fromkeys(listeners, 0)
        self._log = folder / f"{program}.log"
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None

    def address(self, kind: str) -> str:
        return f"127.0.0.1:{self._ports[kind]}"

    def start(self) -> None:
        """Start it and return when its log says that it listens. Raises NotStarted."""
        if all(self._ports.values()):
            self._start()
            return
        for tries_left in reversed(range(_TRIES)):
            self._ports = {kind: self._find_port() for kind in self._listeners}
            try:
                self._start()
            except NotStarted:
                # Another program may have taken a port since it was found to be free.
                if not tries_left or "address already in use" not in self._output():
                    raise
            else:
                return

    def _start(self) -> None:
        listen = [f"--{kind}-address={self.address(kind)}" for kind in self._listeners]
        if any(flag.startswith("--tls-cert=") for flag in self._flags):
            listen.append("--https-address=127.0.0.1:0")  # the usual one may be taken
        with self._log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._program, *listen, *self._flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._log.parent,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                process_group=0,  # Ctrl-C reaches only nsq-load, which stops the daemons in order
                preexec_fn=tie_to_parent(os.getpid()),  # noqa: PLW1509 - no other thread runs yet
            )
        deadline = time.monotonic() + READY_SECONDS
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise NotStarted(f"{self.name} did not start:\n{self._output()[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it with SIGKILL, so that it can neither log nor save anything."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _listens(self) -> bool:
        seen = {kind.lower() for kind in _LISTENING.findall(self._output())}
        return all(kind in seen for kind in self._listeners)

    def _output(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")


class StartedCluster:
    """Everything that ``--start`` starts; ``close`` ends all of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.daemons: list[StartedDaemon] = []
        self.nsqds: list[StartedDaemon] = []
        self.lookupds: list[str] = []
        self.admins: list[str] = []

    def start(self, nsqds: int, flags: list[str], *, nsqadmin: bool) -> None:
        lookupd = self._daemon("nsqlookupd", "nsqlookupd", ["--broadcast-address=127.0.0.1"])
        lookupd.start()
        self.lookupds = [lookupd.address("http")]
        for number in range(nsqds):
            name = f"nsqd-{number + 1}"
            # The machine's name would also work, but TLS needs the address that clients connect to.
            own = ["--broadcast-address=127.0.0.1", f"--lookupd-tcp-address={lookupd.address('tcp')}"]
            nsqd = self._daemon("nsqd", name, [*own, f"--data-path={self._folder / name}", *flags])
            nsqd.start()
            self.nsqds.append(nsqd)
        if nsqadmin:
            asked = [f"--lookupd-http-address={address}" for address in self.lookupds]
            admin = self._daemon("nsqadmin", "nsqadmin", asked, ("http",))
            admin.start()
            self.admins = [admin.address("http")]

    def close(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.stop()

    def _daemon(
        self, program: str, name: str, flags: list[str], listeners: tuple[str, ...] = ("tcp", "http")
    ) -> StartedDaemon:
        daemon = StartedDaemon(program, self._folder / name, flags, listeners)
        self.daemons.append(daemon)
        return daemon
