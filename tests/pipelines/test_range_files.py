"""The files of a range: by hour, complete or absent, and the same when the range is written again."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pyspark_nsq.parquet.layout import BY_HOUR, NO_VALUE, PartitionColumn, file_name, folder_of
from pyspark_nsq.parquet.range_files import RangeFiles
from pyspark_nsq.parquet.storage import UNFINISHED, FolderStorage
from pyspark_nsq.source.columns import ARROW_SCHEMA
from pyspark_nsq.source.planner import LogRange

PART = LogRange("nsqd-0.nsqd:4151", 1000, 2000)
HOUR_US = 3_600_000_000
BEGIN_US = int(datetime(2026, 11, 20, 22, tzinfo=UTC).timestamp()) * 1_000_000


def batch(sequences, hours):
    """Rows with these sequences, published in these hours after 22:00."""
    count = len(sequences)
    columns = {
        "body": [b"%d" % sequence for sequence in sequences],
        "message_id": [f"{sequence:016x}" for sequence in sequences],
        "timestamp": [BEGIN_US + hour * HOUR_US + n for n, hour in enumerate(hours)],
        "attempts": [1] * count,
        "topic": ["orders"] * count,
        "channel": ["archive"] * count,
        "nsqd": [PART.producer] * count,
        "sequence": list(sequences),
    }
    arrays = [pa.array(columns[field.name], field.type) for field in ARROW_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def write(output, *batches, part=PART):
    with RangeFiles(FolderStorage(output), part) as files:
        written = [file for each in batches for file in files.write(each)]
        return [*written, *files.finish()]


def names(output):
    return sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())


def test_rows_are_split_by_hour_of_publishing(tmp_path):
    written = write(tmp_path, batch([1000, 1001, 1002], [0, 1, 2]), batch([1003], [2]))

    assert names(tmp_path) == [
        "date=2026-11-20/hour=22/nsqd-0.nsqd_4151-1000-2000.parquet",
        "date=2026-11-20/hour=23/nsqd-0.nsqd_4151-1000-2000.parquet",
        "date=2026-11-21/hour=00/nsqd-0.nsqd_4151-1000-2000.parquet",
    ]
    assert [file.messages for file in written] == [1, 1, 2]
    assert [Path(file.path).stat().st_size for file in written] == [file.size for file in written]
    # Files of a range that is written again replace the earlier ones.
    before = names(tmp_path)
    write(tmp_path, batch([1000, 1001, 1002], [0, 1, 2]), batch([1003], [2]))
    assert names(tmp_path) == before
    assert ds.dataset(tmp_path, partitioning="hive").count_rows() == 4


def test_written_files_round_trip(tmp_path):
    rows = batch(range(1000, 1500), [0] * 500)
    write(tmp_path, rows)

    (path,) = tmp_path.rglob("*.parquet")
    assert pq.ParquetFile(path).read().to_pylist() == rows.to_pylist()
    assert pq.read_schema(path).equals(ARROW_SCHEMA)


def test_readers_see_complete_files_only(tmp_path):
    write(tmp_path, batch([1], [0]), part=LogRange("n:1", 0, 2))
    seen = []
    with RangeFiles(FolderStorage(tmp_path), PART) as files:
        for n in range(3):
            list(files.write(batch([1000 + n], [n])))
            seen.append(len(pd.read_parquet(tmp_path)))
        assert len(list((tmp_path / UNFINISHED).iterdir())) == 3
        seen += [len(pd.read_parquet(tmp_path)) for _ in files.finish()]

    assert seen == [1, 1, 1, 2, 3, 4]
    assert list((tmp_path / UNFINISHED).iterdir()) == []


def test_failed_task_leaves_no_file(tmp_path):
    with pytest.raises(RuntimeError), RangeFiles(FolderStorage(tmp_path), PART) as files:
        list(files.write(batch([1000], [0])))
        raise RuntimeError("nsqd is gone")
    assert names(tmp_path) == []

    # A file that cannot be moved into its place.
    (tmp_path / "date=2026-11-20").touch()
    with pytest.raises(OSError):
        write(tmp_path, batch([1000], [0]))
    assert names(tmp_path) == ["date=2026-11-20"]


def test_file_is_synced_before_its_move_and_its_name_afterwards(tmp_path, monkeypatch):
    steps = []
    sync, replace = os.fsync, Path.replace
    monkeypatch.setattr(
        os, "fsync", lambda file: (steps.append(Path(f"/proc/self/fd/{file}").resolve().name), sync(file))[1]
    )
    monkeypatch.setattr(
        Path, "replace", lambda path, target: (steps.append("moved"), replace(path, target))[1]
    )
    write(tmp_path, batch([1000], [0]))

    moved = steps.index("moved")
    assert steps[moved - 3].startswith("nsqd-0.nsqd_4151-1000-2000.parquet.")
    # Between these two steps the folders for the name are made.
    assert steps[moved - 2 : moved] == [tmp_path.name, "date=2026-11-20"]
    assert steps[moved + 1 :] == ["hour=22"]


def test_messages_of_many_hours_need_few_open_files(tmp_path):
    """Such ranges exist when messages were transferred from another nsqd."""
    rows = [batch([1000 + 20 * n + k for k in range(20)], range(20)) for n in range(3)]
    written = write(tmp_path, *rows)

    assert sum(file.messages for file in written) == 60
    assert len({file.path for file in written}) == len(written)
    again = write(tmp_path, *rows)
    assert again == written
    stored = ds.dataset(tmp_path, partitioning="hive").to_table().column("sequence").to_pylist()
    assert sorted(stored) == list(range(1000, 1060))


def test_rows_are_split_by_columns_of_body(tmp_path):
    by = tuple(map(PartitionColumn.parse, ("date", "city=$.address.city")))
    rows = batch([1000, 1001, 1002], [0, 0, 3])
    bodies = [
        b'{"address": {"city": "K/\xc3\xb6ln"}}',
        b'{"address": 1}',
        b'{"address": {"city": "K/\xc3\xb6ln"}}',
    ]
    rows = rows.set_column(0, ARROW_SCHEMA.field("body"), pa.array(bodies, ARROW_SCHEMA.field("body").type))
    with RangeFiles(FolderStorage(tmp_path), PART, by=by) as files:
        written = [*files.write(rows), *files.finish()]

    assert [file.name.rpartition("/")[0] for file in written] == [
        "date=2026-11-20/city=K%2Föln",
        "date=2026-11-20/city=__HIVE_DEFAULT_PARTITION__",
        "date=2026-11-21/city=K%2Föln",
    ]
    table = ds.dataset(tmp_path, partitioning="hive").to_table()
    assert {*zip(table["sequence"].to_pylist(), table["city"].to_pylist(), strict=True)} == {
        (1000, "K/öln"),
        (1001, None),
        (1002, "K/öln"),
    }


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        (None, NO_VALUE),
        ("", NO_VALUE),
        ("x" * 201, NO_VALUE),
        ("a=b%", "a%3Db%25"),
        (1.5, "1.5"),
        (True, "true"),
        (["a"], "%5B%22a%22%5D"),
        ("..", ".."),
    ],
)
def test_partition_value_is_name_of_one_folder(value, folder):
    column = PartitionColumn.parse("v=$.v")

    assert folder_of([column], 0, {"v": value}) == f"v={folder}"
    assert folder_of([column], 0, [value]) == f"v={NO_VALUE}"


@pytest.mark.parametrize(
    ("hour", "folder"),
    [
        (0, "date=1970-01-01/hour=00"),
        (-1, "date=1969-12-31/hour=23"),
        (490_000, "date=2025-11-24/hour=16"),
    ],
)
def test_hour_has_folder_in_utc(hour, folder):
    assert folder_of(BY_HOUR, hour) == folder


@pytest.mark.parametrize(
    ("producer", "number", "name"),
    [
        ("nsqd-0.nsqd:4151", 2, "nsqd-0.nsqd_4151-5-9-2.parquet"),
        ("[::1]:4151", 0, "___1__4151-5-9.parquet"),
        ("../../x:1", 0, ".._.._x_1-5-9.parquet"),
    ],
)
def test_file_is_named_by_its_range(producer, number, name):
    assert file_name(LogRange(producer, 5, 9), number) == name
