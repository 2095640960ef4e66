"""Which files of a folder count when something lists them; test_replay.py has those of a table."""

import pytest

from pyspark_nsq.parquet.listed import files_of
from pyspark_nsq.source.errors import SourceError


def test_files_without_list_are_those_of_readers_of_parquet(tmp_path):
    for name in ("a.parquet", "_b.parquet", "_unfinished/c.parquet", "hour=09/d.parquet", "e.crc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    assert files_of(tmp_path) == [tmp_path / "a.parquet", tmp_path / "hour=09" / "d.parquet"]


@pytest.mark.parametrize("part", [".", "date=2026-11-20/hour=09"])
def test_folder_of_sparks_own_sink_is_refused(tmp_path, part):
    (tmp_path / "run=5" / "date=2026-11-20" / "hour=09").mkdir(parents=True)
    (tmp_path / "run=5" / "_spark_metadata").mkdir()

    with pytest.raises(SourceError, match="was written by a query of Spark"):
        files_of(tmp_path / "run=5" / part)
