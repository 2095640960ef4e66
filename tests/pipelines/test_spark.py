"""The format "nsq" in a Spark session: reads and writes, repeated batches, and what an error says."""

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from pyspark_nsq import register
from pyspark_nsq.jobs.main import main
from pyspark_nsq.jobs.sentences import sentence
from tests.pipelines.conftest import Nodes, depth
from tests.pipelines.spark_jobs import Archive, descendants
from tests.support.youzan import YouzanClient, mpub_ext, pub_ext

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]


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


# --- batch reads


def test_batch_read_has_kept_messages_and_creates_no_channel(spark, nodes, topic, published):
    found = spark.read.format("nsq").options(**nodes.options(topic, channel="", minPartitions="4")).load()

    assert found.rdd.getNumPartitions() == 4
    collected = found.collect()
    assert len(collected) == 10
    assert {row.channel for row in collected} == {None}
    assert [depth(nsqd, topic) for nsqd in nodes.nsqds] == [None, None]


def test_sql_view_reads_topic_and_table_is_refused(spark, nodes, topic, published):
    options = f"OPTIONS (lookupdHttpAddresses '{nodes.lookupd.http_address}', topic '{topic}')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW of_topic USING nsq {options}")

    assert spark.sql("SELECT count(*) AS n FROM of_topic").head().n == 10
    with pytest.raises(Exception, match="is for views and not for tables of a catalog"):
        spark.sql(f"CREATE TABLE of_catalog USING nsq {options}")


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
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_java_maps_classes_that_stage_keeps(spark):
    """The image for nsq-archive names its file in the same variable."""
    kept = re.search(r"-XX:SharedArchiveFile=(\S+)", os.environ.get("SPARK_SUBMIT_OPTS", ""))
    if kept is None:
        pytest.skip("only ./test spark keeps the classes")

    assert kept[1] in Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text()


# --- streams


def test_failed_batch_is_repeated_with_the_same_rows(nodes, topic, query):
    """A batch is acknowledged when the next one is planned, and not before."""
    attempts, seen = {}, []

    def fail_once(batch, number):
        attempts.setdefault(number, []).append(rows(batch))
        seen.append(sum(depth(nsqd, topic) for nsqd in nodes.nsqds))
        if number == 1 and len(attempts[1]) == 1:
            raise InterruptedError("the sink failed")

    with pytest.raises(Exception, match="the sink failed"):
        query.run(fail_once)
    for nsqd in nodes.nsqds:
        nodes.publish(nsqd, topic, b"later")
    query.run(fail_once)

    assert attempts[1][0] == attempts[1][1]
    assert seen == [10, 6, 8, 4]
    assert [depth(nsqd, topic) for nsqd in nodes.nsqds] == [0, 0]
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


def test_inferred_columns_are_kept_beside_checkpoint(spark, nodes, topic, tmp_path):
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
    stored = spark.read.parquet(table).select("order", "price", "_corrupt_record").collect()
    assert sorted(map(tuple, stored), key=str) == [(1, 2.5, None), (2, 1.0, None), (None, None, b"no json")]
    # A batch read needs no file, and infers the columns from the present messages.
    assert "customer" in spark.read.format("nsq").options(**options).load().columns


# --- errors


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


def test_stream_with_invalid_option_is_refused_without_traceback(spark, nodes, topic, tmp_path):
    query = Query(spark, tmp_path / "checkpoint", nodes.options(topic, channel=""))
    with pytest.raises(Exception) as caught:
        query.run(lambda _batch, _number: None)

    expected = "option channel is missing: a stream acknowledges what it has read on a channel"
    assert sentence(caught.value) == expected
    assert "Traceback" not in str(caught.value)


def test_table_that_cannot_be_published_is_refused_without_traceback(spark, nodes, topic):
    writer = spark.sql("SELECT 'x' AS body").write.format("nsq").mode("overwrite")
    with pytest.raises(Exception, match="a topic cannot be overwritten") as caught:
        writer.options(lookupdHttpAddresses=nodes.lookupd.http_address, topic=topic).save()
    assert "Traceback" not in str(caught.value)


# --- headers

TRACE = b'{"traceparent":"00-ab-cd-01","t\\u00e9nant":"a \\"b\\""}'
PUBLISHED = {
    b"one": {"traceparent": "00-ab-cd-01", "ténant": 'a "b"'},
    b"two": {"k": "v"},
    b"three": {},
    b"four": {},
}


@pytest.fixture
def with_headers(nodes, topic):
    """Messages with and without headers on the first nsqd, and one without headers on the other."""
    with YouzanClient(("127.0.0.1", nodes.nsqds[0].tcp_port)) as wire:
        assert wire.ask(pub_ext(topic, TRACE, b"one")) == b"OK"
        assert wire.ask(mpub_ext(topic, (b'{"k":"v"}', b"two"), (b"", b"three"))) == b"OK"
    nodes.listed(nodes.nsqds[0], topic)
    nodes.publish(nodes.nsqds[1], topic, b"four")


def headers_of(frame):
    """The headers of each body; asserts that no body occurs twice."""
    collected = frame.collect()
    found = {bytes(row.body): row.headers for row in collected}
    assert len(found) == len(collected)
    return found


def consumed(nodes, topic):
    """The headers of each body, consumed from both nsqds with headers switched on."""
    found = {}
    for nsqd in nodes.nsqds:
        count = sum(one["message_count"] for one in nsqd.get(f"/stats?format=json&topic={topic}")["topics"])
        with YouzanClient(("127.0.0.1", nsqd.tcp_port)) as wire:
            if count:
                wire.subscribe(topic, "read", ready=100)
            for _ in range(count):
                message = wire.extended()
                assert message.body not in found
                found[message.body] = json.loads(message.headers or b"{}")
    return found


def test_batch_read_has_headers_on_request(spark, nodes, topic, with_headers):
    read = spark.read.format("nsq").options(**nodes.options(topic, channel=""))

    assert "headers" not in read.load().columns
    assert headers_of(read.option("includeHeaders", "true").load()) == PUBLISHED
    chosen = read.schema("headers map<string,string>, body binary").load()
    assert [row.body for row in chosen.where("headers['k'] = 'v'").collect()] == [b"two"]


def test_headers_pass_through_stream_from_topic_to_topic(spark, nodes, topic, with_headers, tmp_path):
    options = nodes.options(topic, includeHeaders="true", startingOffsets="earliest")
    query = (
        spark.readStream.format("nsq")
        .options(**options)
        .load()
        .selectExpr("body", "headers", "concat(topic, '-again') AS topic")
        .writeStream.format("nsq")
        .options(lookupdHttpAddresses=nodes.lookupd.http_address)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    assert consumed(nodes, f"{topic}-again") == PUBLISHED


def test_headers_pass_through_archive_and_replay(spark, nodes, topic, with_headers, tmp_path):
    flags = ["--headers", "--starting-offsets=earliest"]
    archive = Archive(tmp_path, nodes.lookupd.http_address, topic, *flags)
    assert archive.run(spark) == len(PUBLISHED)
    assert headers_of(spark.read.parquet(str(archive.output))) == PUBLISHED

    again = f"{topic}-again"
    lookupd = f"--lookupd-http-address={nodes.lookupd.http_address}"
    assert main(["replay", f"--input={archive.output}", f"--topic={again}", lookupd]) == 0
    assert consumed(nodes, again) == PUBLISHED
