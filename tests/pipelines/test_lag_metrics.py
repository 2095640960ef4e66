"""The lag of a query among Spark's own metrics, as a sink of Spark's shows them."""

import json

import pytest

from pyspark_nsq import report_lag
from pyspark_nsq.lag_metrics import LagMetrics, lags_of
from pyspark_nsq.source.errors import SourceError
from tests.support.waiting import wait_until


def gauges(spark):
    """What Spark's metrics system has of ours, by name."""
    sources = spark._jvm.org.apache.spark.SparkEnv.get().metricsSystem().getSourcesByName("AccumulatorSource")
    found = {}
    for number in range(sources.size()):
        for name, gauge in dict(sources.apply(number).metricRegistry().getGauges()).items():
            found[name] = gauge.getValue()
    return {name: value for name, value in found.items() if name.startswith("nsq.lag.")}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_lag_of_each_nsqd_is_a_metric_of_spark(spark, nodes, topic, tmp_path):
    for number, nsqd in enumerate(nodes.nsqds):
        nodes.publish(nsqd, topic, *(b"%d" % n for n in range(4 + 2 * number)))
    seen = []

    def take(_batch, _number):
        seen.append(gauges(spark).get(f"nsq.lag.{topic}"))

    query = (
        spark.readStream.format("nsq")
        .options(**nodes.options(topic, maxOffsetsPerTrigger="4"))
        .load()
        .writeStream.foreachBatch(take)
        .queryName(topic)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    first, second = (f"nsq.lag.{topic}.{nsqd.http_address}" for nsqd in nodes.nsqds)

    assert lags_of(query.recentProgress[0]) == dict(
        zip((nsqd.http_address for nsqd in nodes.nsqds), (2, 4), strict=True)
    )
    # The listener is told a moment after the query has gone on.
    wait_until(lambda: gauges(spark).get(first) == gauges(spark).get(second) == 0, "both are read")
    assert gauges(spark)[f"nsq.lag.{topic}"] == 0


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_an_nsqd_that_is_no_more_has_no_lag(spark):
    metrics = LagMetrics(spark)
    metrics.note("leaving", {"a:1": 5, "b:1": 7})
    metrics.note("leaving", {"b:1": 3})

    found = gauges(spark)
    assert {name: found[name] for name in found if "leaving" in name} == {
        "nsq.lag.leaving": 3,
        "nsq.lag.leaving.a:1": 0,
        "nsq.lag.leaving.b:1": 3,
    }


class Source:
    def __init__(self, latest):
        self.latestOffset = latest


class Progress:
    def __init__(self, *latest):
        self.sources = [Source(one) for one in latest]


def test_the_lag_is_that_of_all_sources_of_ours_together():
    mine = json.dumps({"a:1": 17, "lag": 5, "lags": {"a:1": 5}})
    other = {"lags": {"a:1": 1, "b:1": 2}}

    assert lags_of(Progress(mine, other, None, "5", '{"partition": {"0": 3}}')) == {"a:1": 6, "b:1": 2}
    assert lags_of(Progress(None)) == {}


def test_a_client_of_spark_connect_is_told_where_to_look():
    with pytest.raises(SourceError, match=r"out of reach of a client of Spark Connect; .*lags_of"):
        report_lag(object())
