"""The format "nsq" in a Spark session: batch reads, batches that are repeated, and what an error says."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from pyspark_nsq import register
from pyspark_nsq.jobs.sentences import sentence
from tests.pipelines.conftest import Nodes, depth
from tests.pipelines.spark_jobs import descendants

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]


EPHEMERAL = (
    "option channel is 'c#ephemeral': an ephemeral channel is gone when nsqd restarts, and with it what "
    "keeps the messages that the query has not read; name one without #ephemeral"
)


class Query:
    """A streaming query whose batches go to a function; it can be run to its end any number of times."""

    def __init__(self, spark, checkpoint, options):
        self.spark = spark
        self.checkpoint = checkpoint
        self.options = options

    def run(self, take):
        """Call *take* with each batch of the present messages; raises the error that ended the query."""
        query = (
            self.spark.readStream.format("nsq")
            .options(**self.options)
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def rows(batch):
    return sorted((row.nsqd, row.sequence, bytes(row.body)) for row in batch.collect())


@pytest.fixture
def published(nodes, topic):
    """Five messages on each nsqd."""
    for number, nsqd in enumerate(nodes.nsqds):
        nodes.publish(nsqd, topic, *(b"%d-%d" % (number, n) for n in range(5)))


@pytest.fixture
def query(spark, nodes, topic, tmp_path, published):
    return Query(spark, tmp_path / "checkpoint", nodes.options(topic, maxOffsetsPerTrigger="4"))


def test_batch_read_has_all_that_is_kept_and_makes_no_channel(spark, nodes, topic, published):
    found = spark.read.format("nsq").options(**nodes.options(topic, channel="", minPartitions="4")).load()

    assert found.count() == 10
    assert found.rdd.getNumPartitions() == 4
    assert {row.channel for row in found.collect()} == {None}
    assert [depth(nsqd, topic) for nsqd in nodes.nsqds] == [None, None]


def test_java_maps_classes_that_stage_keeps(spark):
    """The image for nsq-archive names its file in the same variable."""
    kept = re.search(r"-XX:SharedArchiveFile=(\S+)", os.environ.get("SPARK_SUBMIT_OPTS", ""))
    if kept is None:
        pytest.skip("only ./test spark keeps the classes")

    assert kept[1] in Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text()


def test_sql_view_reads_topic_and_table_is_refused(spark, nodes, topic, published):
    options = f"OPTIONS (lookupdHttpAddresses '{nodes.lookupd.http_address}', topic '{topic}')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW of_topic USING nsq {options}")

    assert spark.sql("SELECT count(*) AS n FROM of_topic").head().n == 10
    with pytest.raises(Exception, match="is for views and not for tables of a catalog"):
        spark.sql(f"CREATE TABLE of_catalog USING nsq {options}")


def test_batch_read_returns_backlog_of_channel(spark, nodes, topic, query):
    taken = []

    def take_one_batch(batch, number):
        if number:
            raise InterruptedError("one is enough")
        taken.extend(rows(batch))

    with pytest.raises(Exception, match="one is enough"):
        query.run(take_one_batch)
    left = spark.read.format("nsq").options(**nodes.options(topic, startingOffsets="acknowledged")).load()

    assert len(taken) == 4
    assert len(rows(left)) == 6
    assert not set(taken) & set(rows(left))


def test_every_batch_is_acknowledged_when_the_next_one_is_planned_and_not_before(nodes, topic, query):
    seen = []

    def take(batch, _number):
        seen.append((batch.count(), sum(depth(nsqd, topic) for nsqd in nodes.nsqds)))

    query.run(take)

    assert seen == [(4, 10), (4, 6), (2, 2)]
    assert sum(depth(nsqd, topic) for nsqd in nodes.nsqds) == 0


def test_failed_batch_is_repeated_with_the_same_rows(nodes, topic, query):
    attempts = {}

    def fail_once(batch, number):
        attempts.setdefault(number, []).append(rows(batch))
        if number == 1 and len(attempts[1]) == 1:
            raise InterruptedError("the sink failed")

    with pytest.raises(Exception, match="the sink failed"):
        query.run(fail_once)
    for nsqd in nodes.nsqds:
        nodes.publish(nsqd, topic, b"later")
    query.run(fail_once)

    assert attempts[1][0] == attempts[1][1]
    stored = sorted(row for batches in attempts.values() for row in batches[-1])
    assert len(stored) == len(set(stored)) == 12


def test_nsqd_killed_while_spark_reads_is_named_then_read(spark, cluster, topic, tmp_path):
    nodes = Nodes(cluster)
    for nsqd in nodes.nsqds:
        nodes.publish(nsqd, topic, b"a", b"b")
    query = Query(spark, tmp_path / "checkpoint", nodes.options(topic))
    alive, dying = nodes.nsqds

    def kill_and_read(batch, _number):
        dying.kill()
        batch.collect()

    with pytest.raises(Exception) as caught:
        query.run(kill_and_read)

    assert sentence(caught.value).startswith(
        f'nsqd {dying.http_address} stopped answering while it was read: Get "http://{dying.http_address}/log/'
    )
    assert depth(alive, topic) == 2

    dying.start()
    taken = []
    query.run(lambda batch, _number: taken.extend(rows(batch)))

    assert sorted(body for _, _, body in taken) == [b"a", b"a", b"b", b"b"]
    assert [depth(nsqd, topic) for nsqd in nodes.nsqds] == [0, 0]


def test_killed_planner_is_named_and_the_next_run_continues(nodes, topic, query):
    taken = []

    def kill_the_planner(batch, number):
        if number == 1:
            for pid in descendants(os.getpid()):
                if b"python_streaming_source_runner" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
        taken.extend(rows(batch))

    with pytest.raises(Exception) as caught:
        query.run(kill_the_planner)
    assert sentence(caught.value).startswith("the Python process that plans the batches has died, ")

    query.run(lambda batch, _number: taken.extend(rows(batch)))

    assert len(set(taken)) == 10
    assert sum(depth(nsqd, topic) for nsqd in nodes.nsqds) == 0


def test_filter_on_time_and_sequence_is_passed_on(spark, nodes, topic, published):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        messages = spark.read.format("nsq").options(**nodes.options(topic)).load()
        first = messages.filter(f"nsqd = '{nodes.nsqds[0].http_address}'").agg({"sequence": "min"}).first()[0]
        found = messages.filter(
            f"sequence >= {first + 2} AND sequence < {first + 4} AND timestamp > '2020-01-01 00:00:00'"
        )
        plan = found._jdf.queryExecution().optimizedPlan().toString()

        # No part of the filter is left to Spark.
        assert "Filter" not in plan
        assert [body for _, _, body in rows(found)] == [b"0-2", b"0-3"]
        assert messages.filter("timestamp < '2020-01-01 00:00:00'").count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_json_becomes_columns_beside_those_of_message(spark, nodes, topic):
    nodes.publish(
        nodes.nsqds[0], topic, b'{"order": 7, "price": 1.5, "at": {"x": [1, 2]}}', b"[1]", b'{"order": 8}'
    )
    orders = (
        spark.read.format("nsq")
        .schema("order long, price double, at struct<x: array<int>>, nsqd string, _corrupt_record string")
        .options(**nodes.options(topic, bodyFormat="json"))
        .load()
    )
    address = nodes.nsqds[0].http_address

    assert [
        (row.order, row.price, row.at and row.at.x, row.nsqd, row._corrupt_record) for row in orders.collect()
    ] == [
        (7, 1.5, [1, 2], address, None),
        (None, None, None, address, "[1]"),
        (8, None, None, address, None),
    ]


def test_columns_of_json_are_found_out_once_and_kept_beside_checkpoint(spark, nodes, topic, tmp_path):
    nodes.publish(nodes.nsqds[0], topic, b'{"order": 1, "price": 2.5}', b"no json")
    options = nodes.options(topic, bodyFormat="json", startingOffsets="earliest")
    table = str(tmp_path / "table")

    def run(**more):
        orders = spark.readStream.format("nsq").options(**options, **more).load()
        query = (
            orders.writeStream.format("parquet")
            .options(path=table, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return orders.columns

    with pytest.raises(Exception) as caught:
        run()
    assert sentence(caught.value).startswith("option bodyFormat is json, which in a stream needs a schema")

    kept = {"schemaLocation": str(tmp_path / "orders.schema.json")}
    found = run(**kept)
    nodes.publish(nodes.nsqds[1], topic, b'{"price": 1, "order": 2, "customer": 7}')

    assert found == ["timestamp", "topic", "nsqd", "sequence", "order", "price", "_corrupt_record"]
    assert run(**kept) == found
    rows = spark.read.parquet(table).select("order", "price", "_corrupt_record").collect()
    assert sorted(map(tuple, rows), key=str) == [(1, 2.5, None), (2, 1.0, None), (None, None, b"no json")]
    # A batch read needs no file, and infers the columns from the present messages.
    assert "customer" in spark.read.format("nsq").options(**options).load().columns


def test_executors_without_package_are_named(spark, nodes, topic, published, tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    context, complete = spark.sparkContext, spark.sparkContext.pythonExec
    context.pythonExec = str(bare)
    register(spark)
    try:
        with pytest.raises(Exception) as caught:
            spark.read.format("nsq").options(**nodes.options(topic)).load().count()
    finally:
        context.pythonExec = complete
        register(spark)

    assert re.match("the executors' Python has no [a-z_]+: install pyspark-nsq", sentence(caught.value))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"channel": ""}, "option channel is missing: a stream acknowledges what it has read on a channel"),
        (
            {"channel": "c#ephemeral"},
            EPHEMERAL,
        ),
        (
            {"maxOffsetsPerTrigger": "-5"},
            "option maxOffsetsPerTrigger is '-5'; it must be a whole number above 0",
        ),
    ],
)
def test_bad_option_is_named(spark, nodes, topic, tmp_path, published, changes, expected):
    query = Query(spark, tmp_path / "checkpoint", {**nodes.options(topic), **changes})
    with pytest.raises(Exception) as caught:
        query.run(lambda _batch, _number: None)

    assert sentence(caught.value) == expected
    assert "Traceback" not in str(caught.value)
