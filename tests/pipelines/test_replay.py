"""Parquet files are published again: each once, at a given pace, continuing where the last run ended."""

import json
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.ports import free_port
from pyspark_nsq.jobs.main import main
from pyspark_nsq.jobs.replay import RateLimit
from pyspark_nsq.parquet.delta import DeltaLog
from pyspark_nsq.source.columns import ARROW_SCHEMA
from pyspark_nsq.source.headers import HEADERS_TYPE
from pyspark_nsq.source.stream_reader import NsqStreamReader
from tests.pipelines.streams import ALL, bodies_of
from tests.pipelines.test_delta import written
from tests.support.nsqd_http import set_policy


@pytest.fixture
def archive(tmp_path):
    """Two hours of an archive, each with two row groups, and a file that is not finished."""
    for hour in (b"08", b"09"):
        folder = tmp_path / "archive" / "date=2026-11-20" / f"hour={hour.decode()}"
        folder.mkdir(parents=True)
        table = pa.table({"body": [b"%b-%d" % (hour, n) for n in range(6)], "sequence": list(range(6))})
        pq.write_table(table, folder / "part.parquet", row_group_size=3)
    unfinished = tmp_path / "archive" / "_unfinished"
    unfinished.mkdir()
    (unfinished / "part.parquet").write_bytes(b"PAR1")
    return tmp_path / "archive"


EXPECTED = sorted(b"%b-%d" % (hour, n) for hour in (b"08", b"09") for n in range(6))


@pytest.fixture
def flags(nodes, topic, archive):
    return [f"--input={archive}", f"--topic={topic}", f"--lookupd-http-address={nodes.lookupd.http_address}"]


def published(nodes, topic):
    for nsqd in nodes.nsqds:
        if topic in [one["topic_name"] for one in nsqd.get("/stats?format=json")["topics"]]:
            nodes.listed(nsqd, topic)
    reader = NsqStreamReader(nodes.parsed(topic, startingOffsets="earliest"))
    start = reader.initialOffset()
    return bodies_of(reader, start, reader.latestOffset(start, ALL))


@pytest.fixture
def table(tmp_path):
    """A compacted Delta table of 50 messages, with the files from before and those of a killed task."""
    output = tmp_path / "archive of täbles"
    log = DeltaLog(str(output), ARROW_SCHEMA)
    for number in range(5):
        log.commit("q", number, written(output, 10 * number))
    written(output, 40, attempt="killed")
    log.compact()
    return output


def test_messages_of_compacted_table_are_published_once(nodes, topic, flags, table):
    assert len(list(table.rglob("*.parquet"))) > 2
    assert main(["replay", *flags[1:], f"--input={table}"]) == 0
    assert published(nodes, topic) == sorted(b"%d" % n for n in range(50))
    # Also of an hour of the table, only the listed files count.
    (hour,) = table.glob("*/hour=22")
    flags = [f"--topic={topic}-hour", *flags[2:], f"--input={hour}"]
    assert main(["replay", *flags]) == 0
    assert published(nodes, f"{topic}-hour") == sorted(b"%d" % n for n in range(0, 50, 2))


def test_table_compacted_since_the_last_run_is_named(nodes, topic, flags, table, tmp_path, capsys):
    flags = [*flags[1:], f"--input={table}", f"--progress={tmp_path / 'progress.json'}"]
    assert main(["replay", *flags]) == 0
    log = DeltaLog(str(table), ARROW_SCHEMA)
    log.commit("q", 5, written(table, 50))
    log.compact()

    assert main(["replay", *flags]) == 1
    assert "it was compacted or changed since" in capsys.readouterr().err
    assert len(published(nodes, topic)) == 50


def test_run_resumes_after_previous_one(nodes, topic, flags, tmp_path, archive, capsys):
    progress = tmp_path / "progress.json"
    done = {"date=2026-11-20/hour=08/part.parquet": 2, "date=2026-11-20/hour=09/part.parquet": 1}
    progress.write_text(json.dumps({"input": str(archive), "row_groups": done}))

    assert main(["replay", *flags, f"--progress={progress}"]) == 0
    assert published(nodes, topic) == [b"09-3", b"09-4", b"09-5"]

    assert main(["replay", *flags, f"--progress={progress}"]) == 0
    assert "0 messages published" in capsys.readouterr().out


def with_ids(archive):
    """Give the messages of the archive ids."""
    for number, path in enumerate(sorted(archive.glob("date=*/*/*.parquet"))):
        table = pq.read_table(path, columns=["body"], partitioning=None)
        headers = pa.array([[("dedup-id", f"{number}-{n}")] for n in range(len(table))], HEADERS_TYPE)
        pq.write_table(table.append_column("headers", headers), path, row_group_size=3)


def test_messages_with_ids_are_stored_once_when_row_group_is_repeated(nodes, topic, flags, tmp_path, archive):
    with_ids(archive)
    for nsqd in nodes.nsqds:
        set_policy(nsqd, f"^{topic}$", name=topic, dedup_window="1h")
    progress = tmp_path / "progress.json"
    assert main(["replay", *flags, f"--progress={progress}"]) == 0
    once = json.loads(progress.read_text())
    for _ in range(3):
        # A run that is killed within a row group has not noted it.
        (*_, last) = once["row_groups"]
        progress.write_text(json.dumps(once | {"row_groups": once["row_groups"] | {last: 1}}))
        assert main(["replay", *flags, f"--progress={progress}"]) == 0

    assert published(nodes, topic) == EXPECTED


def test_messages_with_ids_need_each_nsqlookupd(nodes, topic, flags, archive, capsys):
    away = f"127.0.0.1:{free_port()}"
    flags = [*flags, f"--lookupd-http-address={away}", "--retry-seconds=0"]
    assert main(["replay", *flags]) == 0
    assert "12 messages published in " in capsys.readouterr().out
    with_ids(archive)

    assert main(["replay", *flags]) == 1
    sentence = capsys.readouterr().err
    assert "is uncertain: " in sentence
    assert away in sentence
    assert published(nodes, topic) == EXPECTED


def test_rate_is_kept_and_makes_up_for_a_second_at_most(nodes, topic, flags):
    limit = RateLimit(10, now=0)
    assert limit.wait(10, now=0) == 1
    assert limit.wait(5, now=1.5) == 0
    # All nsqds were away for an hour.
    assert [limit.wait(5, now=3600) for _ in range(4)] == [0, 0, 0.5, 1]
    assert RateLimit(0, now=0).wait(1_000_000, now=0) == 0

    began = time.monotonic()
    assert main(["replay", *flags, "--rate=20"]) == 0
    assert time.monotonic() - began > 0.5


def test_unusable_progress_or_input_is_named(flags, tmp_path, archive, capsys):
    progress = tmp_path / "progress.json"
    progress.write_text(json.dumps({"input": "/elsewhere", "row_groups": {}}))
    assert main(["replay", *flags, f"--progress={progress}"]) == 1
    assert f"--progress={progress} belongs to --input=/elsewhere" in capsys.readouterr().err

    pq.write_table(pa.table({"x": [1]}), archive / "a.parquet")
    assert main(["replay", *flags]) == 1
    assert "a.parquet has no column body, which is what a message is made of" in capsys.readouterr().err
