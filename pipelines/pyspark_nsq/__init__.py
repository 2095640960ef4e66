"""NSQ for Spark: the data source "nsq", and jobs that use it.

If this package is installed, Spark finds the format by itself:

messages = spark.readStream.format("nsq").options(topic="orders", channel="archive", ...).load()
"""

import atexit
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DefaultSource", "register", "report_lag"]


def register(spark: "SparkSession") -> None:
    """Register the format "nsq" with a session, and give the format the number of cores of the cluster.

    Needed if Spark cannot see that the package is installed, as with --py-files.
    """
    # Imported here, so that the pure parts of the package can be used without Spark.
    from pyspark_nsq.source.source import NsqDataSource
    from pyspark_nsq.unpacked import unpacked

    # Spark Connect has no context to ask.
    context = getattr(spark, "_sc", None)
    cores = None if context is None else context.defaultParallelism
    source = type("NsqDataSource", (NsqDataSource,), {"cores": cores})
    if context is None:
        spark.dataSource.register(source)
        return
    _have_planner_find(context)
    # Spark warns if it had found the installed package by itself.
    manager = "org.apache.spark.sql.execution.datasources.DataSourceManager"
    log4j = context._jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(manager, log4j.Level.ERROR)
    with unpacked(context):
        spark.dataSource.register(source)


def _have_planner_find(context: Any) -> None:
    """With --py-files, make the process that plans a stream find this package.

    Spark gives that process a folder in which the files are missing.
    """
    archive = getattr(__spec__.loader, "archive", None)
    if archive is not None:
        there = context.environment.get("PYTHONPATH", "").split(os.pathsep)
        if archive not in there:
            context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, (archive, *there)))


def report_lag(spark: "SparkSession") -> None:
    """Add the lag of all queries that start from now on to Spark's metrics.

    ``nsq.lag.QUERY`` is the lag of a query, by its name or else its id, and ``nsq.lag.QUERY.TOPIC@NSQD`` the
    part of it in one topic of one nsqd. Raises SourceError in a client of Spark Connect, which
    cannot reach the metrics.
    """
    from pyspark_nsq.lag_metrics import LagListener, LagMetrics

    listener = LagListener(LagMetrics(spark))
    spark.streams.addListener(listener)
    # Otherwise Java prints stack traces, because it reports the last progress to a Python that has ended.
    atexit.register(_remove, spark, listener)


def _remove(spark: "SparkSession", listener: Any) -> None:
    with suppress(Exception):  # Java may have ended before
        spark.streams.removeListener(listener)


def __getattr__(name: str) -> Any:
    """Return the class by which Spark finds the format in packages that begin with ``pyspark_``."""
    if name == "DefaultSource":
        from pyspark_nsq.source.source import NsqDataSource

        return NsqDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
