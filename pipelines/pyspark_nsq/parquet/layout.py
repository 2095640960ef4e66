"""Where the rows of a range go: a folder for each hour of publishing, and a file named by the range. Pure.

    archive/date=2026-11-20/hour=09/nsqd-0.nsqd_4151-1700000000000123-1700000000500123.parquet

A range that is read again after a failure has the same rows, so it makes the same names and replaces its
files instead of adding to them.
"""

import re
from datetime import UTC, datetime
from typing import Final

from pyspark_nsq.source.planner import LogRange

# Places that pyarrow.fs knows.
SCHEMES: Final = ("s3", "gs", "gcs", "hdfs", "abfs", "abfss", "file")
# How the folders are called, outermost first.
PARTITIONS: Final = ("date", "hour")
US_PER_HOUR: Final = 3_600_000_000
SUFFIX: Final = ".parquet"

# Characters of host names and IPv6 addresses that cause trouble in file names and URLs.
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


def folder_of(hour: int) -> str:
    """The folder of an hour, counted from 1970 in UTC, below the output."""
    moment = datetime.fromtimestamp(hour * 3600, UTC)
    return f"date={moment:%Y-%m-%d}/hour={moment:%H}"


def partition_values(name: str) -> dict[str, str | None]:
    """What the folders of a file say."""
    found = (folder.partition("=") for folder in name.split("/")[:-1])
    return {column: value for column, _, value in found}


def file_name(part: LogRange, number: int, attempt: str = "") -> str:
    """The name of the file of *part* in one hour; *number* is 0 unless the range has one already.

    With an *attempt*, the files of a range that is written again stand beside those of before.
    """
    nsqd = _UNSAFE.sub("_", part.producer)
    again = f"-{number}" if number else ""
    tried = f"-{attempt}" if attempt else ""
    return f"{nsqd}-{part.start}-{part.end}{again}{tried}{SUFFIX}"
