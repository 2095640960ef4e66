"""The Delta table over an archive: each batch once, and compaction unfinished readers."""

import os
import time

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pyspark_nsq.parquet.delta import DeltaLog
from pyspark_nsq.parquet.range_files import RangeFiles
from pyspark_nsq.parquet.storage import FolderStorage
from pyspark_nsq.source.columns import ARROW_SCHEMA, ARROW_SCHEMA_WITH_HEADERS
from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.planner import LogRange
from tests.pipelines.test_range_files import batch


def written(output, first, count=10, attempt="a"):
    """Files of a range that are not in the table yet."""
    part = LogRange("n:1", first, first + count)
    rows = batch(range(first, first + count), [n % 2 for n in range(count)])
    with RangeFiles(FolderStorage(output), part, attempt=attempt) as files:
        found = [*files.write(rows), *files.finish()]
    return [(one.name, one.messages, one.size) for one in found]


def sequences(output):
    return sorted(DeltaTable(output).to_pyarrow_table()["sequence"].to_pylist())


@pytest.fixture
def log(tmp_path):
    return DeltaLog(str(tmp_path), ARROW_SCHEMA)


def test_readers_see_only_committed_rows(tmp_path, log):
    assert log.commit("q", 0, written(tmp_path, 0))
    written(tmp_path, 0, attempt="killed")
    assert log.commit("q", 1, written(tmp_path, 10))

    assert sequences(tmp_path) == list(range(20))
    found = DeltaTable(tmp_path).to_pyarrow_table()
    assert sorted(set(found["hour"].to_pylist())) == ["22", "23"]
    assert {str(day) for day in found["date"].to_pylist()} == {"2026-11-20"}


def test_batch_is_stored_once_for_each_query(tmp_path, log):
    log.commit("q", 0, written(tmp_path, 0))
    assert not log.commit("q", 0, written(tmp_path, 0, attempt="again"))
    assert not DeltaLog(str(tmp_path), ARROW_SCHEMA).commit("q", 0, written(tmp_path, 0, attempt="third"))
    assert log.commit("other", 0, written(tmp_path, 100))

    assert sequences(tmp_path) == [*range(10), *range(100, 110)]


def test_compaction_merges_small_files_and_keeps_those_of_readers(tmp_path, log):
    for number in range(5):
        log.commit("q", number, written(tmp_path, 10 * number))
    before = DeltaTable(tmp_path)
    files = before.file_uris()
    done = log.compact()

    assert (done.removed, done.added) == (10, 2)
    assert sequences(tmp_path) == list(range(50))
    assert len(DeltaTable(tmp_path).file_uris()) == 2
    # A reader with the list of files from before still finds them.
    assert sum(pq.read_metadata(file).num_rows for file in files) == 50
    assert sorted(before.to_pyarrow_table()["sequence"].to_pylist()) == list(range(50))
    assert log.has("q", 4)


def test_compaction_removes_files_of_killed_tasks_after_a_week(tmp_path, log):
    log.commit("q", 0, written(tmp_path, 0))
    for attempt in ("killed", "running"):
        written(tmp_path, 10, attempt=attempt)
    long_ago = time.time() - 8 * 86400
    for file in tmp_path.rglob("*-killed.parquet"):
        os.utime(file, (long_ago, long_ago))
    log.compact()

    assert not list(tmp_path.rglob("*-killed.parquet"))
    assert len(list(tmp_path.rglob("*-running.parquet"))) == 2
    assert sequences(tmp_path) == list(range(10))


def test_batch_with_other_columns_is_refused(tmp_path, log):
    log.commit("q", 0, written(tmp_path, 0))
    with pytest.raises(SourceError, match=r"the Delta table .* was begun without headers; continue so"):
        DeltaLog(str(tmp_path), ARROW_SCHEMA_WITH_HEADERS).commit("q", 1, written(tmp_path, 10))
    assert sequences(tmp_path) == list(range(10))
