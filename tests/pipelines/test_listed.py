"""Which files of a folder count when something lists them."""

import json

import pytest

from pyspark_nsq.parquet.listed import files_of


@pytest.fixture
def output(tmp_path):
    """Files of an hour, and what Spark noted of its batches: 9.compact has the earlier ones too."""
    hour = tmp_path / "date=2026-11-20" / "hour=09"
    hour.mkdir(parents=True)
    for name in ("a", "b", "c", "killed"):
        (hour / f"{name}.parquet").touch()
    notes = tmp_path / "_spark_metadata"
    notes.mkdir()
    for batch, names in {"8": "b", "9.compact": "ab", "10": "c", "11": ""}.items():
        # Spark writes addresses as they were then; a folder may have been moved since.
        entries = [
            json.dumps({"path": f"file:///was/date=2026-11-20/hour=09/{name}.parquet", "action": "add"})
            for name in names
        ]
        (notes / batch).write_text("\n".join(["v1", *entries]))
    (notes / ".10.crc").write_text("crc")
    return tmp_path


def test_files_that_spark_does_not_list_are_left_out(output):
    hour = output / "date=2026-11-20" / "hour=09"
    listed = [hour / f"{name}.parquet" for name in "abc"]
    assert files_of(output) == listed
    assert files_of(hour) == listed
    # A name with an equals sign may also be that of a whole archive.
    moved = output.rename(output.with_name("run=5"))
    assert [path.name for path in files_of(moved)] == ["a.parquet", "b.parquet", "c.parquet"]


def test_files_without_list_are_those_of_readers_of_parquet(tmp_path):
    for name in ("a.parquet", "_b.parquet", "_unfinished/c.parquet", "hour=09/d.parquet", "e.crc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    assert files_of(tmp_path) == [tmp_path / "a.parquet", tmp_path / "hour=09" / "d.parquet"]
