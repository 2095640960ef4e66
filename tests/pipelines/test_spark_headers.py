"""Headers in a Spark session: read and written, as a batch and as a stream, and through an archive."""

import json

import pytest

from pyspark_nsq.jobs.main import main
from tests.pipelines.spark_jobs import Archive
from tests.support.youzan import YouzanClient, mpub_ext, pub_ext

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

TRACE = b'{"traceparent":"00-ab-cd-01","t\\u00e9nant":"a \\"b\\""}'
PUBLISHED = {
    b"one": {"traceparent": "00-ab-cd-01", "ténant": 'a "b"'},
    b"two": {"k": "v"},
    b"three": {},
    b"four": {},
}


@pytest.fixture
def published(nodes, topic):
    """Messages with and without headers on the first nsqd, and one without headers on the other."""
    with YouzanClient(tcp_of(nodes.nsqds[0])) as wire:
        assert wire.ask(pub_ext(topic, TRACE, b"one")) == b"OK"
        assert wire.ask(mpub_ext(topic, (b'{"k":"v"}', b"two"), (b"", b"three"))) == b"OK"
    nodes.listed(nodes.nsqds[0], topic)
    nodes.publish(nodes.nsqds[1], topic, b"four")


def tcp_of(nsqd):
    return ("127.0.0.1", nsqd.tcp_port)


def headers_of(frame):
    """The headers of each body; asserts that no body occurs twice."""
    rows = frame.collect()
    found = {bytes(row.body): row.headers for row in rows}
    assert len(found) == len(rows)
    return found


def stream(spark, options, take, checkpoint, **changes):
    query = (
        spark.readStream.format("nsq")
        .options(**options, **changes)
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def consumed(nodes, topic):
    """The headers of each body, consumed from both nsqds with headers switched on."""
    found = {}
    for nsqd in nodes.nsqds:
        count = sum(one["message_count"] for one in nsqd.get(f"/stats?format=json&topic={topic}")["topics"])
        with YouzanClient(tcp_of(nsqd)) as wire:
            if count:
                wire.subscribe(topic, "read", ready=100)
            for _ in range(count):
                message = wire.extended()
                assert message.body not in found
                found[message.body] = json.loads(message.headers or b"{}")
    return found


def test_batch_read_has_headers_where_they_are_asked_for(spark, nodes, topic, published):
    read = spark.read.format("nsq").options(**nodes.options(topic, channel=""))

    assert "headers" not in read.load().columns
    assert headers_of(read.option("includeHeaders", "true").load()) == PUBLISHED
    chosen = read.schema("headers map<string,string>, body binary").load()
    assert chosen.columns == ["headers", "body"]
    assert headers_of(chosen) == PUBLISHED
    assert [row.body for row in chosen.where("headers['k'] = 'v'").collect()] == [b"two"]


def test_stream_has_headers_and_repeated_batch_the_same(spark, nodes, topic, published, tmp_path):
    taken = []

    def take(batch, number):
        taken.append((number, headers_of(batch)))
        if len(taken) == 1:
            raise InterruptedError("the sink failed")

    options = nodes.options(topic, includeHeaders="true", startingOffsets="earliest")
    with pytest.raises(Exception, match="the sink failed"):
        stream(spark, options, take, tmp_path / "checkpoint")
    stream(spark, options, take, tmp_path / "checkpoint")

    assert taken == [(0, PUBLISHED), (0, PUBLISHED)]


def test_columns_of_json_stand_beside_headers(spark, nodes, topic):
    with YouzanClient(tcp_of(nodes.nsqds[0])) as wire:
        assert wire.ask(pub_ext(topic, b'{"k":"v"}', b'{"order": 7}')) == b"OK"
    nodes.listed(nodes.nsqds[0], topic)
    options = nodes.options(topic, channel="", bodyFormat="json", includeHeaders="true")
    schema = "order long, headers map<string,string>"

    (row,) = spark.read.format("nsq").schema(schema).options(**options).load().collect()

    assert (row.order, row.headers) == (7, {"k": "v"})


ROWS = """
    SELECT 'one' AS body, map('a', 'ä', 'b', '') AS headers
    UNION ALL SELECT 'two', map() UNION ALL SELECT 'three', NULL UNION ALL SELECT 'four', map('c', 'd')
"""
WRITTEN = {b"one": {"a": "ä", "b": ""}, b"two": {}, b"three": {}, b"four": {"c": "d"}}


def test_rows_with_headers_are_published_with_them(spark, nodes, topic):
    options = {"lookupdHttpAddresses": nodes.lookupd.http_address, "topic": topic}
    spark.sql(ROWS).write.format("nsq").mode("append").options(**options).save()

    assert consumed(nodes, topic) == WRITTEN


def test_stream_is_written_with_its_headers(spark, nodes, topic, published, tmp_path):
    options = nodes.options(topic, includeHeaders="true", startingOffsets="earliest")
    query = (
        spark.readStream.format("nsq")
        .options(**options)
        .load()
        .select("body", "headers")
        .writeStream.format("nsq")
        .options(lookupdHttpAddresses=nodes.lookupd.http_address, topic=f"{topic}-again")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    assert consumed(nodes, f"{topic}-again") == PUBLISHED


def test_message_with_headers_can_be_put_off(spark, nodes, topic):
    options = {"lookupdHttpAddresses": nodes.lookupd.http_address, "topic": topic}
    rows = spark.sql("SELECT 'later' AS body, map('a', 'b') AS headers, 3600000 AS defer_ms")
    rows.write.format("nsq").mode("append").options(**options).save()

    found = []
    for nsqd in nodes.nsqds:
        if any(one["topic_name"] == topic for one in nsqd.get("/stats?format=json")["topics"]):
            nsqd.post(f"/channel/create?topic={topic}&channel=c")
            found += nsqd.get(f"/messages?topic={topic}&channel=c")["messages"]
    assert [(one["state"], one["headers"], one["body"]) for one in found] == [
        ("deferred", {"a": "b"}, "later")
    ]


def test_headers_that_are_too_long_fail_task_with_sentence(spark, nodes, topic):
    options = {"lookupdHttpAddresses": nodes.lookupd.http_address, "topic": topic}
    rows = spark.sql("SELECT 'm' AS body, map('a', repeat('x', 70000)) AS headers")

    with pytest.raises(
        Exception, match="the headers of a row are 70008 bytes of JSON, above the 65535 of nsqd"
    ):
        rows.write.format("nsq").mode("append").options(**options).save()


def test_archive_with_headers_is_published_again_with_them(spark, nodes, topic, published, tmp_path):
    flags = ["--headers", "--starting-offsets=earliest"]
    archive = Archive(tmp_path, nodes.lookupd.http_address, topic, *flags)
    assert archive.run(spark) == len(PUBLISHED)
    output = archive.output
    assert headers_of(spark.read.parquet(str(output))) == PUBLISHED

    again = f"{topic}-again"
    lookupd = f"--lookupd-http-address={nodes.lookupd.http_address}"
    assert main(["replay", f"--input={output}", f"--topic={again}", lookupd]) == 0
    assert consumed(nodes, again) == PUBLISHED
