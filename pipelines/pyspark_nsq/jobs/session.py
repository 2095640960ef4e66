"""A Spark session for a job, and the signals that end it."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from pyspark_nsq import register, report_lag
from pyspark_nsq.jobs.sentences import first_line

# Spark logs nothing: errors are reported in one sentence at the end.
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")


class JobError(Exception):
    """The job cannot continue; the text is one sentence."""


@contextmanager
def spark_session(name: str, master: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session that knows the format "nsq"; *conf* overrides the defaults chosen here. Raises JobError."""
    # The executors' Python must be this one, or they would not find the data source.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Other readers of Parquet mistake Spark's default format for local time.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    builder = SparkSession.Builder().appName(name)
    if master:
        builder = builder.master(master)
        if master.startswith("local"):
            # With these the processes find each other even if the name of the machine does not resolve.
            settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for key, value in {**settings, **conf}.items():
        builder = builder.config(key, value)
    try:
        _start_java({**settings, **conf, **({"spark.master": master} if master else {})})
        session = builder.getOrCreate()
    except PySparkException as error:
        raise JobError(f"Spark did not start (it needs Java 17 or newer): {first_line(error)}") from error
    try:
        register(session)
        report_lag(session)
        _hush(session)
        yield session
    finally:
        session.stop()


def _hush(session: SparkSession) -> None:
    """Silence tracebacks of the threads that talk to a dead JVM; the job itself reports its death."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    # Some of its messages use the root logger.
    logging.getLogger().addFilter(lambda record: Path(record.pathname).parent.name != "py4j")
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_words: None


def _start_java(conf: Mapping[str, str]) -> None:
    """Start Spark's JVM in a session of its own, unless spark-submit has started one.

    A supervisor sends signals to the whole process group. In a session of its own the JVM does not get them,
    so the job can stop the query in good order. Otherwise the JVM and the Python workers would die in the
    middle of a batch.
    """
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        settings = SparkConf(loadDefaults=False)
        for key, value in conf.items():
            settings.set(key, value)
        process = {"start_new_session": True}
        chosen = os.environ.get("LOG4J_CONFIGURATION_FILE")
        os.environ["LOG4J_CONFIGURATION_FILE"] = chosen or str(_LOGGING)
        try:
            gateway = launch_gateway(settings, process)  # type: ignore[no-untyped-call]
        finally:
            # Other programs that this process starts log as they always do.
            if chosen is None:
                del os.environ["LOG4J_CONFIGURATION_FILE"]
        SparkContext._ensure_initialized(gateway=gateway)
