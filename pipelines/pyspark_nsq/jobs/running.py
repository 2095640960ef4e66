"""The common part of jobs on Spark: start it, run to the end or a signal, report a failure in a sentence."""

import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_nsq.jobs.run import QueryRun


def run_job(
    program: str,
    done: str,
    master: str,
    conf: Mapping[str, str],
    start: "Callable[[SparkSession], QueryRun]",
    afterwards: Callable[[], int] = lambda: 0,
) -> int:
    """Run the query of *start*; return the exit code, 1 if something failed. *done* is a past participle.

    If it ran to its end, *afterwards* returns the exit code; after a signal there may be no time for that.
    """
    if find_spec("pyspark") is None:
        return fail(program, "Spark is not installed; pip install 'pyspark-nsq[spark]' brings it")
    from pyspark_nsq.jobs.run import run_until_end
    from pyspark_nsq.jobs.sentences import sentence
    from pyspark_nsq.jobs.session import JobError, spark_session
    from pyspark_nsq.jobs.signals import stop_signals

    began = time.monotonic()
    messages = 0
    try:
        with stop_signals() as stop, spark_session(program, master, conf) as spark:
            ready = time.monotonic()
            if not stop.asked:
                messages = run_until_end(start(spark), stop)
            ended = time.monotonic()
    except JobError as error:
        return fail(program, str(error))
    except Exception as error:  # noqa: BLE001 - every error of Spark is reported in one sentence
        return fail(program, sentence(error))
    rate = messages / (ended - ready)
    print(
        f"{messages} messages {done} in {ended - ready:.1f} s, {rate:.0f} a second; "
        f"starting Spark took {ready - began:.1f} s"
    )
    return 0 if stop.asked else afterwards()


def fail(program: str, reason: str) -> int:
    print(f"{program}: {reason}", file=sys.stderr)
    return 1
