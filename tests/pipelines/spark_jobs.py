"""Running the archive job as a process of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

# Two cores are all that CI has; the rest keeps Spark small.
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
}


class Archive:
    """One archive: a topic, a folder and a checkpoint; run as often as one likes."""

    def __init__(self, folder: Path, lookupd_address, topic, *flags):
        self.output = folder / "output"
        self.checkpoint = folder / "checkpoint"
        self.log = folder / "job.log"
        self.command = [
            sys.executable,
            "-m",
            "pipelines.jobs.archive",
            f"--lookupd-http-address={lookupd_address}",
            f"--topic={topic}",
            "--channel=archive",
            f"--output={self.output}",
            f"--checkpoint={self.checkpoint}",
            "--master=local[2]",
            "--retry-seconds=1",
            *(f"--conf={key}={value}" for key, value in SETTINGS.items()),
            *flags,
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *flags):
        """Start the job in a process group of its own."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*self.command, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=Path(__file__).parents[2],
                env={**os.environ, "PYTHONWARNINGS": "default"},
                start_new_session=True,
            )
        return self.process

    def run(self, *flags):
        """Run the job to its end; its exit code and its last line."""
        process = self.start("--available-now", *flags)
        try:
            code = process.wait(110)
        finally:
            self.kill()
        return code, self.said().strip().splitlines()[-1]

    def kill(self):
        """SIGKILL to driver, JVM and Python workers at once: nobody can finish anything."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)

    def said(self):
        return self.log.read_text(errors="replace")

    def batches(self):
        """How many batches Spark has noted as stored."""
        return len([path for path in self.checkpoint.glob("commits/*") if path.name.isdigit()])
