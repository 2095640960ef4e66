"""Folders and file names of an archive."""

import pytest

from pyspark_nsq.parquet.layout import BY_HOUR, file_name, folder_of
from pyspark_nsq.source.planner import LogRange


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
        ("nsqd-0.nsqd:4151", 0, "nsqd-0.nsqd_4151-5-9.parquet"),
        ("nsqd-0.nsqd:4151", 2, "nsqd-0.nsqd_4151-5-9-2.parquet"),
        ("[::1]:4151", 0, "___1__4151-5-9.parquet"),
        ("../../x:1", 0, ".._.._x_1-5-9.parquet"),
    ],
)
def test_file_is_named_by_its_range(producer, number, name):
    assert file_name(LogRange(producer, 5, 9), number) == name
