"""Runs the jobs of a connection between a primary and a replica, as threads do in a running nsqd."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from nsqd.log.disk import Disk


class RunsOn(Protocol):
    """A job that reads or writes files."""

    def run(self, disk: Disk) -> object: ...


J = TypeVar("J", bound=RunsOn)


def run_all(
    jobs: Callable[[], Sequence[J]], disk: Disk, ended: Callable[[J, OSError | None], object]
) -> bool:
    """Run jobs until there are no more, and hand back each with its error; whether there were any."""
    any_ran = False
    while waiting := jobs():
        any_ran = True
        for job in waiting:
            error = None
            try:
                job.run(disk)
            except OSError as failed:
                error = failed
            ended(job, error)
    return any_ran
