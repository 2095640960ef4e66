"""The lag of a query, from its progress and among Spark's own metrics."""

import json

import pytest

from pyspark_nsq import report_lag
from pyspark_nsq.lag_metrics import LagMetrics, lags_of
from pyspark_nsq.source.errors import SourceError


def gauges(metrics, query):
    """The values of a query that Spark would show; test_archive.py asks Spark for them."""
    return {name: gauge.value() for name, (gauge, _) in list(metrics._gauges.get(query, {}).items())}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_lag_of_removed_nsqd_becomes_zero_and_other_queries_keep_theirs(spark):
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


def test_lag_is_sum_over_sources_of_query():
    mine = json.dumps({"a:1": 17, "lag": 5, "lags": {"a:1": 5}})
    other = {"lags": {"a:1": 1, "b:1": 2}}

    assert lags_of(Progress(mine, other, None, "5", '{"partition": {"0": 3}}')) == {"a:1": 6, "b:1": 2}
    assert lags_of(Progress(None)) == {}


def test_lag_metrics_are_refused_for_client_of_spark_connect():
    with pytest.raises(SourceError, match=r"out of reach of a client of Spark Connect; .*lags_of"):
        report_lag(object())
