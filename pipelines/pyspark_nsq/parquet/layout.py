"""Where the rows of a range go: a folder for each hour of publishing, and a file named by the range. Pure.

    archive/date=2026-11-20/hour=09/nsqd-0.nsqd_4151-1700000000000123-1700000000500123.parquet

A range that is read again after a failure has the same rows, so it gets the same names and replaces its files
instead of adding to them.
"""

import re
from datetime import UTC, datetime
from typing import Final

from pyspark_nsq.source.planner import LogRange

# Schemes that pyarrow.fs knows.
SCHEMES: Final = ("s3", "gs", "gcs", "hdfs", "abfs", "abfss", "file")
# The names of the folders, outermost first.
PARTITIONS: Final = ("date", "hour")
US_PER_HOUR: Final = 3_600_000_000
SUFFIX: Final = ".parquet"

# Characters of host names and IPv6 addresses that cause trouble in file names and URLs.
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


def folder_of(hour: int) -> str:
    """Return the folder, below the output, of an hour that is counted from 1970 in UTC."""
    moment = datetime.fromtimestamp(hour * 3600, UTC)
    return f"date={moment:%Y-%m-%d}/hour={moment:%H}"


def partition_values(name: str) -> dict[str, str | None]:
    """Return the values in the names of a file's folders."""
    found = (folder.partition("=") for folder in name.split("/")[:-1])
    return {column: value for column, _, value in found}


def file_name(part: LogRange, number: int, attempt: str = "") -> str:
    """Return the name of the file of *part* in one hour; *number* is 0 for its first file there.

    With an *attempt*, the files of a repeated range do not replace the earlier ones.
    """
    # An archive has one topic.
    nsqd = _UNSAFE.sub("_", part.producer.rpartition("@")[2])
    again = f"-{number}" if number else ""
    tried = f"-{attempt}" if attempt else ""
    return f"{nsqd}-{part.start}-{part.end}{again}{tried}{SUFFIX}"
