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
from pyspark_nsq.jobs.archive import compact
from pyspark_nsq.jobs.archive_options import parse
from tests.pipelines.conftest import Nodes, depth
from tests.pipelines.spark_jobs import Archive
from tests.support.object_store import object_store
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

DAY = timedelta(days=1)
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


def test_messages_are_stored_by_date_and_hour_and_acknowledged_all(spark, nodes, topic, archive):
    assert archive.run(spark) == 10
    rows = stored(archive)
    assert bodies(archive) == EXPECTED
    assert {row["topic"] for row in rows} == {topic}
    assert {row["channel"] for row in rows} == {"archive"}
    assert {row["nsqd"] for row in rows} == {nsqd.http_address for nsqd in nodes.nsqds}
    assert [depth(nsqd, topic) for nsqd in nodes.nsqds] == [0, 0]
    now = datetime.now(UTC)
    for file in archive.output.rglob("*.parquet"):
        assert re.fullmatch(r"date=\d{4}-\d\d-\d\d/hour=\d\d", str(file.parent.relative_to(archive.output)))
    for row in rows:
        assert abs((now - row["timestamp"]).total_seconds()) < 300
        assert str(row["date"]) == f"{row['timestamp']:%Y-%m-%d}"
        assert int(row["hour"]) == row["timestamp"].hour


def test_second_run_adds_only_new_messages(spark, nodes, topic, archive):
    archive.run(spark)
    nodes.publish(nodes.nsqds[0], topic, b"later")

    assert archive.run(spark) == 1
    assert bodies(archive) == sorted([*EXPECTED, b"later"])
    assert depth(nodes.nsqds[0], topic) == 0


def test_nothing_is_acknowledged_when_nothing_can_be_written(spark, nodes, topic, archive):
    # Files stand where the folders of today and, at midnight, tomorrow should be, so the tasks cannot write.
    archive.output.mkdir()
    today = datetime.now(UTC)
    in_the_way = [archive.output / f"date={day:%Y-%m-%d}" for day in (today, today + DAY)]
    for path in in_the_way:
        path.touch()

    assert isinstance(archive.run(spark), str)
    assert [depth(nsqd, topic) for nsqd in nodes.nsqds] == [5, 5]

    for path in in_the_way:
        path.unlink()

    assert archive.run(spark) == 10
    assert bodies(archive) == EXPECTED


def test_nsqd_that_dies_between_runs_is_named_and_nothing_is_lost(spark, cluster, topic, tmp_path):
    nodes = Nodes(cluster)
    for nsqd in nodes.nsqds:
        nodes.publish(nsqd, topic, b"first")
    archive = Archive(tmp_path, nodes.lookupd.http_address, topic)
    assert archive.run(spark) == 2
    for nsqd in nodes.nsqds:
        nodes.publish(nsqd, topic, b"second")
    alive, dead = nodes.nsqds
    dead.kill()

    assert str(archive.run(spark)).startswith(f"nsqd {dead.http_address} does not answer: ")
    assert depth(alive, topic) == 1

    dead.start()

    assert archive.run(spark) == 2
    assert bodies(archive) == [b"first", b"first", b"second", b"second"]
    assert [depth(nsqd, topic) for nsqd in nodes.nsqds] == [0, 0]


def test_checkpoint_is_not_used_for_anything_else_than_before(spark, nodes, topic, tmp_path, archive):
    archive.run(spark)
    nodes.publish(nodes.nsqds[0], topic, b"later")
    nodes.publish(nodes.nsqds[0], "another", b"x")
    lookupd = nodes.lookupd.http_address
    with_a_new_checkpoint = Archive(tmp_path, lookupd, topic, checkpoint="new")
    from_another_topic = Archive(tmp_path, lookupd, "another")

    assert with_a_new_checkpoint.run(spark) == (
        f"the output {archive.output} was written with another checkpoint than {tmp_path / 'new'}; "
        "use that one or a new output"
    )
    assert str(from_another_topic.run(spark)).startswith(
        f"the checkpoint {archive.checkpoint} belongs to topic {topic}, channel archive, output "
    )
    assert depth(nodes.nsqds[0], topic) == 1


def test_checkpoint_that_was_lost_is_another_one_though_it_is_at_the_same_place(spark, archive):
    archive.run(spark)
    shutil.rmtree(archive.checkpoint)
    archive.flags.append("--starting-offsets=earliest")

    assert "was written with another checkpoint than" in str(archive.run(spark))
    # The attempt leaves nothing behind that the next one would take for the lost checkpoint.
    assert "was written with another checkpoint than" in str(archive.run(spark))
    assert bodies(archive) == EXPECTED


def test_batch_that_is_not_finished_keeps_its_cut(spark, nodes, topic, tmp_path, archive):
    """With another cut its messages would be stored again, in files with other names."""
    in_the_way = [archive.output / f"date={datetime.now(UTC) + DAY * n:%Y-%m-%d}" for n in (0, 1)]
    archive.output.mkdir()
    for path in in_the_way:
        path.touch()
    archive.run(spark)
    for path in in_the_way:
        path.unlink()
    cut = Archive(tmp_path, nodes.lookupd.http_address, topic, "--min-partitions=8")

    assert cut.run(spark) == 10
    assert bodies(archive) == EXPECTED

    nodes.publish(nodes.nsqds[0], topic, *(b"%d" % n for n in range(16)))

    assert cut.run(spark) == 16
    assert bodies(archive) == sorted([*EXPECTED, *(b"%d" % n for n in range(16))])


def test_delta_table_has_each_batch_once_and_is_compacted(spark, nodes, topic, tmp_path):
    for number, nsqd in enumerate(nodes.nsqds):
        nodes.publish(nsqd, topic, *(b"%d-%d" % (number, n) for n in range(5)))
    flags = ["--max-offsets-per-trigger=4", "--table=delta"]
    archive = Archive(tmp_path, nodes.lookupd.http_address, topic, *flags)
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
    assert compact(parse([*archive.flags, "--available-now", "--compact"])) == 0
    assert read() == EXPECTED
    plain = Archive(tmp_path, nodes.lookupd.http_address, topic)
    assert "was begun with --table=delta; continue" in plain.run(spark)


def test_archive_folders_are_named_by_members_of_body(spark, nodes, topic, tmp_path):
    nodes.publish(nodes.nsqds[0], topic, b'{"shop": "a"}', b'{"shop": "b"}', b"no JSON")
    archive = Archive(tmp_path, nodes.lookupd.http_address, topic, "--by=date", "--by=shop=$.shop")
    otherwise = Archive(tmp_path, nodes.lookupd.http_address, topic, "--by=shop=$.shop")
    assert archive.run(spark) == 3

    assert {(row["shop"], row["body"]) for row in stored(archive)} == {
        ("a", b'{"shop": "a"}'),
        ("b", b'{"shop": "b"}'),
        (None, b"no JSON"),
    }
    assert "by date, shop=$.shop; each needs one of its own" in str(otherwise.run(spark))


def test_archive_refuses_output_of_sparks_own_sink(spark, archive):
    notes = archive.output / "_spark_metadata"
    notes.mkdir(parents=True)
    (notes / "0").write_text("v1\n")

    assert (
        archive.run(spark)
        == f"the output {archive.output} was written by another query of Spark; take a new output"
    )


def test_files_are_uploaded_to_object_store(spark, nodes, topic, tmp_path, monkeypatch, archive):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with object_store() as store:
        query = f"scheme=http&endpoint_override={store.address}&region=us-east-1"
        uploading = Archive(tmp_path, nodes.lookupd.http_address, topic)
        uploading.flags.append(f"--output=s3://lake/orders?{query}")
        assert uploading.run(spark) == 10
        assert uploading.run(spark) == 0
        names = [name for name in store.objects if name.endswith(".parquet")]
        found = [pq.read_table(pa.BufferReader(store.objects[name]))["body"].to_pylist() for name in names]

    assert sorted(body for bodies in found for body in bodies) == EXPECTED
    assert all(name.startswith("lake/orders/date=") for name in names)


def test_files_of_killed_task_are_removed(spark, archive):
    left = archive.output / "_unfinished" / "some.parquet.0"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"PAR1 without an end")

    assert archive.run(spark) == 10
    assert not left.exists()


def test_topic_that_does_not_exist_is_named(spark, nodes, tmp_path):
    assert Archive(tmp_path, nodes.lookupd.http_address, "nowhere").run(spark) == (
        "topic 'nowhere' does not exist: no nsqlookupd has heard of it"
    )


# --- as a process


def test_dead_nsqlookupd_ends_job_with_its_name(topic, tmp_path):
    archive = Archive(tmp_path, "127.0.0.1:1", topic)
    archive.spawn("--available-now")

    code, last = archive.wait(200)

    assert code == 1
    assert last == (
        f"nsq-archive: no nsqlookupd answered the search for topic '{topic}': "
        f'Get "http://127.0.0.1:1/lookup?topic={topic}": connection refused'
    )


SINK = "spark.metrics.conf.*.sink.prometheusServlet"
SERVLET = "org.apache.spark.metrics.sink.PrometheusServlet"


def lag_metrics(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics/prometheus/", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if "nsq_lag" in line and "_Value{" in line)
    return {name.partition("{")[0]: int(value) for name, value in values.items()}


def test_with_trigger_it_acknowledges_while_it_runs_and_ends_at_sigterm(nodes, topic, archive):
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
