"""A Spark session for a job, a query run to its end, and what went wrong in one sentence."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from pipelines import register
from pipelines.source.errors import sentence_in

# Seconds between two looks at a running query.
_POLL_S = 1


class JobError(Exception):
    """The job cannot go on; the text is one sentence."""


@contextmanager
def spark_session(name: str, master: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session that knows the format "nsq"; *conf* goes before the defaults chosen here."""
    # The executors' Python must be this one, or they would not find the data source.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.log.level": "OFF",  # what goes wrong is told in one sentence at the end
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Spark's own default is a format that other readers of Parquet take for local time.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # So many hours are written side by side as their rows come; rows of more are sorted first.
        "spark.sql.maxConcurrentOutputFileWriters": "24",
    }
    builder = SparkSession.Builder().appName(name)
    if master:
        builder = builder.master(master)
        if master.startswith("local"):
            # Whatever this machine is called, its processes find each other here.
            settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for key, value in {**settings, **conf}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkException as error:
        raise JobError(f"Spark did not start (it needs Java 17 or newer): {first_line(error)}") from error
    try:
        register(session)
        yield session
    finally:
        session.stop()


@dataclass(slots=True)
class Run:
    """A query that was started, and how many messages each of its batches has stored."""

    query: StreamingQuery
    messages_in: Callable[[StreamingQueryProgress], int]
    """How many messages the batch of a progress report has."""
    _messages_of: dict[int, int] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        return sum(self._messages_of.values())

    def look(self) -> None:
        """Note the batches that ended since the last look."""
        for progress in self.query.recentProgress:
            if progress.numInputRows:
                self._messages_of[progress.batchId] = self.messages_in(progress)


def run_until_end(run: Run) -> int:
    """Wait until the query has ended, by itself or because SIGTERM or SIGINT came.

    How many messages it stored; raises what ended it.
    """
    stopping = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while not run.query.awaitTermination(_POLL_S):
            run.look()
            if stopping:
                run.query.stop()
        run.look()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return run.messages


def sentence(error: BaseException) -> str:
    """What to tell the person at the terminal."""
    text = str(error)
    return sentence_in(text) or first_line(error)


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
