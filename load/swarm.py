"""Starts, watches and ends Locust's processes for a run: one process, or a master with workers."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from load.plan import Plan
from load.ports import free_port
from nsqcore.process.tied import tie_to_parent

# Users, tally and report take less time to end.
STOP_SECONDS: Final = 60


class Swarm:
    """The processes that put the load on. Each writes its log to a file in the folder of the run."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder = folder
        self._plan = plan
        self._locustfile = folder / "locustfile.py"
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, *, workers: int, others: int, bind: str, ui: int | None) -> None:
        """Start *workers* here and wait for *others* at *bind*; without either, start one process."""
        self._locustfile.write_text(self._plan.locustfile(), encoding="utf-8")
        users = self._plan.profile.users
        flags = [
            *("-f", str(self._locustfile), "-u", str(users), "-r", str(max(100, users))),
            *("--only-summary", "--exit-code-on-error", "0"),
            *("--csv", str(self._folder / "locust"), "--html", str(self._folder / "locust.html")),
        ]
        # A run with Locust's page also begins immediately; the page's form shows the values of the profile.
        flags += ["--headless"] if ui is None else ["--autostart", "--web-port", str(ui)]
        if not workers and not others:
            self._spawn("locust", flags)
            return
        host, _, port = bind.rpartition(":")
        number = int(port) or free_port()
        flags += ["--master", "--master-bind-host", host or "*", "--master-bind-port", str(number)]
        self._spawn("locust", [*flags, "--expect-workers", str(workers + others)])
        for at in range(workers):
            self._spawn(f"worker-{at + 1}", worker_flags(f"127.0.0.1:{number}", str(self._locustfile)))

    def ended(self) -> bool:
        """Say whether the first process has ended; all others end after it."""
        return self._processes[0].poll() is not None

    def stop(self) -> None:
        """End the processes that still run: with SIGTERM, then with SIGKILL."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(STOP_SECONDS if process is self._processes[0] else 5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def log_tail(self) -> str:
        text = (self._folder / "locust.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.strip().splitlines()[-12:])

    def _spawn(self, name: str, flags: list[str]) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "locust", *flags],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment(),
                    process_group=0,  # Ctrl-C reaches only nsq-load, which ends them
                    preexec_fn=tie_to_parent(os.getpid()),  # noqa: PLW1509 - no other thread runs yet
                )
            )


def worker_flags(master: str, locustfile: str = "-") -> list[str]:
    """Return Locust's flags for a worker; with ``-`` it gets the locustfile with the plan from its master."""
    host, _, port = master.rpartition(":")
    return ["-f", locustfile, "--worker", "--master-host", host.strip("[]"), "--master-port", port]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
