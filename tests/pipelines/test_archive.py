"""The archive job on a small cluster: its stored files, its acknowledgements and its failures."""

import os
import re
import shutil
import signal
import urllib.request
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from bench.ports import free_port
from pyspark_nsq.jobs import archive as job
from pyspark_nsq.jobs.archive_options import parse
from pyspark_nsq.jobs.belonging import check_belongs
from pyspark_nsq.jobs.session import JobError
from pyspark_nsq.parquet.storage import FolderStorage
from tests.pipelines.conftest import depth
from tests.pipelines.spark_jobs import Archive
from tests.support.object_store import object_store
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

EXPECTED = sorted(b"%d-%d" % (number, n) for number in range(2) for n in range(5))


@pytest.fixture
def archive(nodes, topic, tmp_path):
    """An archive of the test's topic, which has five messages on each nsqd."""
    for number, nsqd in enumerate(nodes.nsqds):
        nodes.publish(nsqd, topic, *(b"%d-%d" % (number, n) for n in range(5)))
    archive = Archive(tmp_path, nodes.lookupd.http_address, topic, "--max-offsets-per-trigger=4")
    yield archive
    archive.kill()


def stored(archive):
    """All rows of the Parquet files, read without Spark."""
    return ds.dataset(archive.output, format="parquet", partitioning="hive").to_table().to_pylist()


def bodies(archive):
    return sorted(row["body"] for row in stored(archive))


def test_archive_stores_messages_by_hour_and_acknowledges_them(spark, nodes, topic, archive):
    # A killed task has left this file.
    left = archive.output / "_unfinished" / "some.parquet.0"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"PAR1 without an end")

    assert archive.run(spark) == 10
    assert not left.exists()
    rows = stored(archive)
    assert bodies(archive) == EXPECTED
    assert {(row["topic"], row["channel"]) for row in rows} == {(topic, "archive")}
    assert {row["nsqd"] for row in rows} == {nsqd.http_address for nsqd in nodes.nsqds}
    assert [depth(nsqd, topic) for nsqd in nodes.nsqds] == [0, 0]
    now = datetime.now(UTC)
    for file in archive.output.rglob("*.parquet"):
        assert re.fullmatch(r"date=\d{4}-\d\d-\d\d/hour=\d\d", str(file.parent.relative_to(archive.output)))
    for row in rows:
        assert abs((now - row["timestamp"]).total_seconds()) < 300
        assert (str(row["date"]), int(row["hour"])) == (
            f"{row['timestamp']:%Y-%m-%d}",
            row["timestamp"].hour,
        )

    nodes.publish(nodes.nsqds[0], topic, b"later")
    assert archive.run(spark) == 1
    assert bodies(archive) == sorted([*EXPECTED, b"later"])


def test_failed_batch_is_acknowledged_when_it_is_stored_and_keeps_its_cut(
    spark, nodes, topic, tmp_path, archive
):
    """With another cut its messages would be stored again, in files with other names."""
    # Files stand where the folders of today and, at midnight, tomorrow should be, so the tasks cannot write.
    archive.output.mkdir()
    days = (datetime.now(UTC) + timedelta(days=n) for n in (0, 1))
    in_the_way = [archive.output / f"date={day:%Y-%m-%d}" for day in days]
    for path in in_the_way:
        path.touch()
    assert isinstance(archive.run(spark), str)
    assert [depth(nsqd, topic) for nsqd in nodes.nsqds] == [5, 5]
    for path in in_the_way:
        path.unlink()
    cut = Archive(tmp_path, nodes.lookupd.http_address, topic, "--min-partitions=8")

    assert cut.run(spark) == 10
    assert bodies(archive) == EXPECTED
    nodes.publish(nodes.nsqds[0], topic, *(b"%d" % n for n in range(16)))
    assert cut.run(spark) == 16
    assert bodies(archive) == sorted([*EXPECTED, *(b"%d" % n for n in range(16))])


def test_checkpoint_and_output_belong_to_one_archive(spark, tmp_path):
    def check(topic="t", checkpoint="checkpoint", output="output", more=()):
        flags = ("--lookupd-http-address=l:1", f"--topic={topic}", "--channel=archive", *more)
        places = (f"--output={tmp_path / output}", f"--checkpoint={tmp_path / checkpoint}")
        options = parse([*flags, *places])
        check_belongs(spark, options, FolderStorage(tmp_path / output))

    def refused(*words, **changes):
        with pytest.raises(JobError) as caught:
            check(**changes)
        assert all(word in str(caught.value) for word in words), caught.value

    check()
    check()
    refused(f"the checkpoint {tmp_path / 'checkpoint'} belongs to topic t, channel archive", topic="other")
    refused("belongs to topic t, channel archive, output ", output="new")
    refused("each needs one of its own", more=["--by=date"])
    refused("was begun without --table; continue", more=["--table=delta"])
    refused(
        f"the output {tmp_path / 'output'} was written with another checkpoint than {tmp_path / 'new'}; ",
        checkpoint="new",
    )
    # A checkpoint that begins again at the same place is another one, also at the second attempt.
    shutil.rmtree(tmp_path / "checkpoint")
    for _ in range(2):
        refused("was written with another checkpoint than")
    check(checkpoint="by", output="by", more=["--by=date", "--by=shop=$.shop"])
    refused("by date, shop=$.shop", checkpoint="by", output="by")
    check(checkpoint="table", output="table", more=["--table=delta"])
    refused("was begun with --table=delta; continue", checkpoint="table", output="table")
    (tmp_path / "sparks" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "sparks" / "_spark_metadata" / "0").write_text("v1\n")
    refused("was written by another query of Spark", checkpoint="sparks.checkpoint", output="sparks")


def test_delta_table_has_each_batch_once_and_is_compacted(spark, archive):
    archive.flags.append("--table=delta")
    assert archive.run(spark) == 10
    # As if Spark had not noted that the last batch was stored.
    commit = archive.checkpoint / "commits" / "2"
    for path in (commit, commit.with_name(".2.crc")):
        path.unlink()
    version = DeltaTable(archive.output).version()
    archive.run(spark)
    # Spark repeated the batch, and the table did not get it again.
    assert commit.exists()
    assert DeltaTable(archive.output).version() == version

    def read():
        return sorted(DeltaTable(archive.output).to_pyarrow_table()["body"].to_pylist())

    assert read() == EXPECTED
    assert len(list(archive.output.rglob("*.parquet"))) > len(DeltaTable(archive.output).file_uris())
    assert job.compact(parse([*archive.flags, "--available-now", "--compact"])) == 0
    assert read() == EXPECTED


def test_files_are_uploaded_to_object_store_in_folders_of_body_members(
    spark, nodes, topic, tmp_path, monkeypatch
):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    nodes.publish(nodes.nsqds[0], topic, b'{"shop": "a"}', b'{"shop": "b"}', b"no JSON")
    with object_store() as store:
        query = f"scheme=http&endpoint_override={store.address}&region=us-east-1"
        archive = Archive(tmp_path, nodes.lookupd.http_address, topic, "--by=shop=$.shop")
        archive.flags.append(f"--output=s3://lake/orders?{query}")
        assert archive.run(spark) == 3
        assert archive.run(spark) == 0
        found = {
            (name.split("/")[2], *pq.read_table(pa.BufferReader(content))["body"].to_pylist())
            for name, content in store.objects.items()
            if name.endswith(".parquet")
        }

    assert found == {
        ("shop=a", b'{"shop": "a"}'),
        ("shop=b", b'{"shop": "b"}'),
        ("shop=__HIVE_DEFAULT_PARTITION__", b"no JSON"),
    }


SINK = "spark.metrics.conf.*.sink.prometheusServlet"
SERVLET = "org.apache.spark.metrics.sink.PrometheusServlet"


def lag_metrics(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics/prometheus/", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if "nsq_lag" in line and "_Value{" in line)
    return {name.partition("{")[0]: int(value) for name, value in values.items()}


def test_process_with_trigger_acknowledges_while_it_runs_and_ends_at_sigterm(nodes, topic, archive):
    port = free_port()
    process = archive.spawn(
        *("--trigger=200 milliseconds", "--conf=spark.ui.enabled=true", f"--conf=spark.ui.port={port}"),
        *("--conf=spark.metrics.namespace=mine", f"--conf={SINK}.class={SERVLET}"),
        f"--conf={SINK}.path=/metrics/prometheus",
    )
    wait_until(
        lambda: [depth(nsqd, topic) for nsqd in nodes.nsqds] == [0, 0] or process.poll() is not None,
        "all is acknowledged",
        200,
    )

    assert process.poll() is None, archive.said()
    assert bodies(archive) == EXPECTED

    # The lag is among Spark's metrics, as docs/spark-reference.md has it.
    wait_until(lambda: len(found := lag_metrics(port)) == 3 and set(found.values()) == {0}, "there is no lag")
    assert all(
        name.startswith("metrics_mine_driver_AccumulatorSource_nsq_lag_") for name in lag_metrics(port)
    )

    # Systemd and timeout(1) also send the signal to the whole process group.
    os.killpg(process.pid, signal.SIGTERM)
    code, last = archive.wait(60)

    assert (code, last.split(" in ")[0]) == (0, "10 messages archived")
    lines = [line for line in archive.said().splitlines() if line.startswith("batch ")]
    assert [re.sub(r" in .* a second|, \d+ s left at this rate", "", line) for line in lines] == [
        "batch 0: 4 messages, lag 6",
        "batch 1: 4 messages, lag 2",
        "batch 2: 2 messages, lag 0",
    ]
