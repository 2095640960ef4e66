"""How far queries are behind: read from their progress, and added to Spark's own metrics.

A source in Python cannot register its own metrics with Spark. But the progress of a query includes the
source's reports. Spark's metrics system exports registered numbers to Prometheus, JMX, Graphite and others.

    from pyspark_nsq import report_lag

    report_lag(spark)  # before the queries are started
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.stream_reader import LAGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The names of the metrics begin with this.
_METRIC: Final = "nsq.lag"


def lags_of(progress: StreamingQueryProgress) -> dict[str, int]:
    """Return how many messages of each nsqd were left for later batches when the last one was planned."""
    found: dict[str, int] = {}
    for source in progress.sources:
        reported = source.latestOffset
        latest = json.loads(reported) if isinstance(reported, str) else reported
        # A query may also join sources of other kinds.
        lags = latest.get(LAGS) if isinstance(latest, Mapping) else None
        for nsqd, lag in (lags or {}).items():
            found[nsqd] = found.get(nsqd, 0) + int(lag)
    return found


class LagMetrics:
    """Gauges in the metrics system of the driver."""

    def __init__(self, spark: "SparkSession") -> None:
        context: Any = getattr(spark, "_sc", None)
        if context is None:
            raise SourceError(
                "the metrics of Spark are out of reach of a client of Spark Connect; read the lag from the "
                "progress of the query (pyspark_nsq.lag_metrics.lags_of)"
            )
        self._context = context._jsc.sc()
        self._jvm = context._jvm
        # Of each query, by name: Spark's accumulators serve as gauges, each with the value that was last set.
        self._gauges: dict[str, dict[str, tuple[Any, int]]] = {}

    def note(self, query: str, lags: Mapping[str, int]) -> None:
        """Set the lag of *query*; an nsqd that is missing in *lags* gets 0."""
        gauges = self._gauges.setdefault(query, {})
        name = f"{_METRIC}.{query}"
        values = dict.fromkeys(gauges, 0) | {name: sum(lags.values())}
        values |= {f"{name}.{nsqd}": lag for nsqd, lag in lags.items()}
        for metric, value in values.items():
            gauge, before = gauges.get(metric) or (self._new(metric), 0)
            gauge.add(value - before)
            gauges[metric] = gauge, value

    def _new(self, metric: str) -> Any:
        gauge = self._context.longAccumulator(metric)
        spark = self._jvm.org.apache.spark
        named = spark.api.python.PythonUtils.toScalaMap({metric: gauge})
        # An object of Scala. Spark reads the given map only once, so each gauge is registered by its own
        # call.
        getattr(getattr(spark.metrics.source, "LongAccumulatorSource$"), "MODULE$").register(
            self._context, named
        )
        return gauge


class LagListener(StreamingQueryListener):
    """Records the lag from the progress of each query."""

    def __init__(self, metrics: LagMetrics) -> None:
        self._metrics = metrics

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name, as are those below
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        if lags := lags_of(progress):
            self._metrics.note(progress.name or str(progress.id), lags)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass
