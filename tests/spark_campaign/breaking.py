"""The kinds of kill: each kills one part of a run, and restarts it if it does not restart by itself.

Each returns whether something that ran was killed.
"""

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from tests.pipelines.broken import end
from tests.spark_campaign.run import Run
from tests.spark_campaign.standalone import job_processes


def _kill_one(run: Run, pids: list[int]) -> bool:
    if not pids:
        return False
    with suppress(ProcessLookupError):
        os.kill(run.draw.choice(pids), signal.SIGKILL)
        return True
    return False


def executor(run: Run) -> bool:
    """Kill the JVM in which tasks run; the worker starts another."""
    return _kill_one(run, run.spark.executors())


def python_worker(run: Run) -> bool:
    """Kill a Python process that reads ranges and writes files."""
    return _kill_one(run, run.spark.python_workers())


def worker(run: Run) -> bool:
    """Kill a worker with its executor and Python processes, like a machine, and start it again."""
    chosen = run.draw.choice(run.spark.workers)
    killed = chosen.kill(with_children=True)
    run.spark.start_worker(chosen)
    return killed


def master(run: Run) -> bool:
    """Kill the master and start it again, and kill the job.

    The new master does not know the job: the job's executors end and it would wait for others. So it must be
    started again.
    """
    killed = run.spark.master.kill()
    run.spark.start_master()
    run.job.kill()
    return killed


def planner(run: Run) -> bool:
    """Kill the Python process next to the driver that plans the batches."""
    return _kill_one(run, job_processes(run.pid)["planner"])


def jvm(run: Run) -> bool:
    """Kill the JVM of the driver."""
    return _kill_one(run, job_processes(run.pid)["jvm"])


def driver(run: Run) -> bool:
    """Kill the Python process of the job."""
    return _kill_one(run, [run.pid])


def everything(run: Run) -> bool:
    """Kill all processes of the job."""
    return run.job.kill()


def nsqd(run: Run) -> bool:
    """Kill an nsqd and start it again."""
    chosen = run.draw.choice(run.nodes.nsqds)
    with run.publishing:
        end(chosen)
        chosen.start()
    return True


def nsqlookupd(run: Run) -> bool:
    """Kill nsqlookupd and start it again; it then knows no nsqd."""
    end(run.nodes.lookupd)
    run.nodes.lookupd.start()
    return True


KINDS: Final[Mapping[str, Callable[[Run], bool]]] = {
    one.__name__: one
    for one in (executor, python_worker, worker, master, planner, jvm, driver, everything, nsqd, nsqlookupd)
}
