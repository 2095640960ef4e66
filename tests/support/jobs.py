"""Runs the jobs of replication, as threads do in a running nsqd."""

from collections.abc import Callable

from nsqd.log.disk import Disk
from nsqd.replication.job import Job


class WaitingJobs(list[Job]):
    """Jobs that were started and have not run."""

    def start(self, run: Callable[[Disk], None], ended: Callable[[Exception | None, int], None]) -> None:
        self.append(Job(run, ended))

    def take(self) -> list[Job]:
        """Return the jobs since the last call."""
        found = list(self)
        self.clear()
        return found


def error_of(job: Job, disk: Disk) -> OSError | None:
    """Run a job; return its error, if it failed."""
    try:
        job.run(disk)
    except OSError as failed:
        return failed
    return None
