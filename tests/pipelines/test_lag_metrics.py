"""The lag of a query, from its progress and among Spark's own metrics."""

import json

import pytest

from pyspark_nsq import report_lag
from pyspark_nsq.lag_metrics import LagListener, LagMetrics, lags_of
from pyspark_nsq.source.errors import SourceError
from tests.support.waiting import wait_until


def gauges(metrics, query):
    """The values of a query that Spark would show; test_archive.py asks Spark for them."""
    return {name: gauge.value() for name, (gauge, _) in list(metrics._gauges.get(query, {}).items())}


class Recorded(LagListener):
    """Stores its events, because Spark only logs the errors of a listener."""

    def __init__(self, metrics):
        super().__init__(metrics)
        self.metrics = metrics
        self.heard = []

    def onQueryProgress(self, event):  # noqa: N802 - Spark's name
        heard = [event.progress.name, event.progress.batchId, lags_of(event.progress)]
        self.heard.append(heard)
        try:
            super().onQueryProgress(event)
        except BaseException as error:
            heard.append(error)
            raise


@pytest.fixture
def listening(spark):
    """A listener that writes the progress of queries to metrics."""
    listener = Recorded(LagMetrics(spark))
    spark.streams.addListener(listener)
    yield listener
    spark.streams.removeListener(listener)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_lag_of_each_nsqd_is_metric_of_spark(spark, nodes, topic, tmp_path, listening):
    for number, nsqd in enumerate(nodes.nsqds):
        nodes.publish(nsqd, topic, *(b"%d" % n for n in range(4 + 2 * number)))
    query = (
        spark.readStream.format("nsq")
        .options(**nodes.options(topic, maxOffsetsPerTrigger="4"))
        .load()
        .writeStream.format("noop")
        .queryName(topic)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    first, second = (f"{topic}@{nsqd.http_address}" for nsqd in nodes.nsqds)
    read = {f"nsq.lag.{topic}": 0, f"nsq.lag.{topic}.{first}": 0, f"nsq.lag.{topic}.{second}": 0}

    assert lags_of(query.recentProgress[0]) == {first: 2, second: 4}
    # Spark calls the listener a moment after the query has gone on, and perhaps for an earlier test's query.
    try:
        wait_until(lambda: gauges(listening.metrics, topic) == read, "all is read")
    except AssertionError as error:
        error.add_note(
            f"the metrics are {gauges(listening.metrics, topic)}; the listener was told {listening.heard}"
        )
        raise


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_nsqd_that_is_no_more_has_no_lag_and_other_queries_keep_theirs(spark):
    metrics = LagMetrics(spark)
    metrics.note("leaving", {"a:1": 5, "b:1": 7})
    assert gauges(metrics, "leaving")["nsq.lag.leaving"] == 12
    metrics.note("leaving", {"b:1": 3})

    assert gauges(metrics, "leaving") == {
        "nsq.lag.leaving": 3,
        "nsq.lag.leaving.a:1": 0,
        "nsq.lag.leaving.b:1": 3,
    }

    # A query whose name begins with that of another one.
    metrics.note("leaving.eu", {"c:1": 4})
    metrics.note("leaving", {"b:1": 2})
    assert gauges(metrics, "leaving.eu") == {"nsq.lag.leaving.eu": 4, "nsq.lag.leaving.eu.c:1": 4}


class Source:
    def __init__(self, latest):
        self.latestOffset = latest


class Progress:
    def __init__(self, *latest):
        self.sources = [Source(one) for one in latest]


def test_lag_is_that_of_all_sources_of_ours_together():
    mine = json.dumps({"a:1": 17, "lag": 5, "lags": {"a:1": 5}})
    other = {"lags": {"a:1": 1, "b:1": 2}}

    assert lags_of(Progress(mine, other, None, "5", '{"partition": {"0": 3}}')) == {"a:1": 6, "b:1": 2}
    assert lags_of(Progress(None)) == {}


def test_client_of_spark_connect_is_told_where_to_look():
    with pytest.raises(SourceError, match=r"out of reach of a client of Spark Connect; .*lags_of"):
        report_lag(object())
