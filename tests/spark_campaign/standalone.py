"""Spark's own cluster from the pip package: a master, and workers that start executors."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from bench.ports import free_port
from tests.pipelines.spark_jobs import descendants
from tests.support.waiting import wait_until

SPARK_HOME: Final = Path(pyspark.__file__).parent
# Java's compiler for long runs costs more than it saves here.
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Settings of a job on this small cluster on one machine.
CONF: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.executor.memory": "512m",  # Spark accepts no less
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.extraJavaOptions": SHORT_LIVED,
}
_REGISTERED: Final = "Successfully registered with master"
_DEPLOY: Final = "org.apache.spark.deploy"
_STARTED_S: Final = 180


class SparkDaemon:
    """One JVM of the cluster, and the processes that it starts."""

    def __init__(self, log: Path, *words: str) -> None:
        self.log = log
        self._words = words
        self._before = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, until: str) -> Self:
        """Start it, also after a kill, and wait until its log contains *until*."""
        return self.spawn().wait_for(until)

    def wait_for(self, until: str) -> Self:
        wait_until(lambda: until in self.said(), f"{self._words[0]} says {until!r}", _STARTED_S)
        return self

    def spawn(self) -> Self:
        with self.log.open("ab") as log:
            self._before = log.tell()
            self._process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), *self._words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "SPARK_HOME": str(SPARK_HOME),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
                },
                start_new_session=True,
            )
        return self

    def said(self) -> str:
        """Return its log since the last start."""
        with self.log.open("rb") as log:
            log.seek(self._before)
            return log.read().decode(errors="replace")

    def kill(self, *, with_children: bool = False) -> bool:
        """Send SIGKILL; return whether it ran until then."""
        if self._process is None or self._process.poll() is not None:
            return False
        victims = [*descendants(self.pid), self.pid] if with_children else [self.pid]
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return self._process.wait(20) == -signal.SIGKILL


class Standalone:
    """A master and workers of one core each. As a context manager it kills those that still run."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        where = ("--host", "127.0.0.1", "--webui-port", "0")
        self.master = SparkDaemon(
            folder / "master.log", f"{_DEPLOY}.master.Master", *where, "--port", str(port)
        )
        self.workers = [
            SparkDaemon(
                folder / f"worker-{number}.log",
                f"{_DEPLOY}.worker.Worker",
                *where,
                *("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}")),
                self.url,
            )
            for number in range(workers)
        ]

    def __enter__(self) -> Self:
        self.start_master()
        for worker in self.workers:
            worker.spawn()
        for worker in self.workers:
            worker.wait_for(_REGISTERED)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for daemon in (*self.workers, self.master):
            daemon.kill(with_children=True)

    def start_master(self) -> None:
        self.master.start("I have been elected leader")

    def start_worker(self, worker: SparkDaemon) -> None:
        worker.start(_REGISTERED)

    def executors(self) -> list[int]:
        """Return the pids of the JVMs in which tasks run."""
        return [pid for worker in self.workers for pid in descendants(worker.pid) if _runs(pid, _EXECUTOR)]

    def python_workers(self) -> list[int]:
        """Return the pids of the executors' Python processes."""
        return [
            pid for worker in self.workers for pid in descendants(worker.pid) if _runs(pid, b"pyspark.daemon")
        ]


_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"


def _runs(pid: int, word: bytes) -> bool:
    with suppress(OSError):
        return word in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def job_processes(pid: int) -> dict[str, list[int]]:
    """Return the pids of a job by kind: its JVM, and the Python process that plans."""
    found: dict[str, list[int]] = {"jvm": [], "planner": []}
    for child in descendants(pid):
        if _runs(child, b"python_streaming_source_runner"):
            found["planner"].append(child)
        elif _runs(child, b"org.apache.spark.deploy.SparkSubmit"):
            found["jvm"].append(child)
    return found
