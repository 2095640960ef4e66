"""Runs the archive job in the tests' Spark session, or as its own process that can be killed."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from pyspark_nsq.jobs import archive
from pyspark_nsq.jobs.run import run_until_end
from pyspark_nsq.jobs.sentences import sentence
from pyspark_nsq.jobs.signals import Stop

# Two cores are all that CI has; the rest keeps Spark small.
SETTINGS = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}


def descendants(pid):
    """The pids of the processes that a process has started, directly or indirectly."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name may contain any characters; the fields after it are state and parent.
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for known in found:
        found += [child for child, parent in parents.items() if parent == known]
    return found[1:]


class Archive:
    """One archive: a topic, a folder and a checkpoint. It can be run any number of times."""

    def __init__(
        self, folder: Path, lookupd_address, topic, *flags, checkpoint="checkpoint", output="output"
    ):
        self.output = folder / output
        self.checkpoint = folder / checkpoint
        self.log = folder / "job.log"
        self.flags = [
            f"--lookupd-http-address={lookupd_address}",
            f"--topic={topic}",
            "--channel=archive",
            f"--output={self.output}",
            f"--checkpoint={self.checkpoint}",
            "--retry-seconds=1",
            *flags,
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, spark):
        """Archive the present messages; return how many they were, or the sentence of the error."""
        options = archive.parse([*self.flags, "--available-now"])
        try:
            return run_until_end(archive.start(spark, options), Stop())
        except Exception as error:  # noqa: BLE001 - as the job does
            return sentence(error)

    def spawn(self, *flags):
        """Start the job as a process in its own process group."""
        settings = [f"--conf={key}={value}" for key, value in SETTINGS.items()]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "pyspark_nsq.jobs.archive",
                    *self.flags,
                    "--master=local[2]",
                    *settings,
                    *flags,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=Path(__file__).parents[2],
                start_new_session=True,
            )
        return self.process

    def wait(self, seconds):
        """Wait for the process; return its exit code and its last line."""
        try:
            code = self.process.wait(seconds)
        finally:
            self.kill()
        return code, self.said().strip().splitlines()[-1]

    def kill(self):
        """Send SIGKILL to driver, JVM and Python workers together, so that none can finish anything.

        Returns whether the job ran until then.
        """
        if self.process is not None and self.process.poll() is None:
            for pid in descendants(self.process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.kill()
            return self.process.wait(10) == -signal.SIGKILL
        return False

    def said(self):
        return self.log.read_text(errors="replace")

    def batches(self):
        """How many batches Spark has noted as stored."""
        return len([path for path in self.checkpoint.glob("commits/*") if path.name.isdigit()])
