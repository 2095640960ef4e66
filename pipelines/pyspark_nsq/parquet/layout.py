"""Where the rows of a range go: a folder for each hour of publishing, and a file named by the range. Pure.

    archive/date=2026-11-20/hour=09/nsqd-0.nsqd_4151-1700000000000123-1700000000500123.parquet

The folders can have other columns: the day, and members of JSON bodies.

A range that is read again after a failure has the same rows, so it gets the same names and replaces its files
instead of adding to them.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self

from pyspark_nsq.source.planner import LogRange

# Schemes that pyarrow.fs knows.
SCHEMES: Final = ("s3", "gs", "gcs", "hdfs", "abfs", "abfss", "file")
# The names of the folders, outermost first.
PARTITIONS: Final = ("date", "hour")
US_PER_HOUR: Final = 3_600_000_000
SUFFIX: Final = ".parquet"

# Characters of host names and IPv6 addresses that cause problems in file names and URLs.
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


# The value of a row that has none, as in Hive and Spark.
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
# Spark and Hive write these characters of a value as %XX.
_ESCAPED: Final = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")
# File systems allow 255 bytes for the name of a folder.
_MAX_VALUE_BYTES: Final = 200


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A column after which folders are named: ``date``, ``hour``, or a member of JSON bodies."""

    name: str
    path: tuple[str, ...] = ()
    """The names from the outermost object of the body to the member."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``date``, ``hour`` or ``NAME=$.MEMBER``, as in ``city=$.address.city``. Raises ValueError."""
        if text in PARTITIONS:
            return cls(text)
        name, _, path = text.partition("=")
        root, *members = path.split(".")
        if not re.fullmatch(r"\w+", name) or root != "$" or not members or not all(members):
            raise ValueError(f"{text} is not date, hour or NAME=$.MEMBER, such as city=$.address.city")
        return cls(name, tuple(members))

    def value(self, hour: int, body: object) -> str:
        """Return the value of a row: *hour* is counted from 1970 in UTC, *body* is the parsed JSON."""
        if not self.path:
            moment = datetime.fromtimestamp(hour * 3600, UTC)
            return f"{moment:%Y-%m-%d}" if self.name == "date" else f"{moment:%H}"
        for member in self.path:
            body = body.get(member) if isinstance(body, dict) else None
        if body is None:
            return NO_VALUE
        text = body if isinstance(body, str) else json.dumps(body, separators=(",", ":"))
        escaped = _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
        return escaped if text and len(escaped.encode()) <= _MAX_VALUE_BYTES else NO_VALUE


BY_HOUR: Final = tuple(PartitionColumn(name) for name in PARTITIONS)


def folder_of(columns: Sequence[PartitionColumn], hour: int, body: object = None) -> str:
    """Return the folder, below the output, of a row that was published in *hour*."""
    return "/".join(f"{column.name}={column.value(hour, body)}" for column in columns)


def json_of(body: bytes) -> object:
    """Return the parsed body; None if it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def partition_values(name: str) -> dict[str, str | None]:
    """Return the values in the names of a file's folders."""
    found = (folder.partition("=") for folder in name.split("/")[:-1])
    return {column: value for column, _, value in found}


def file_name(part: LogRange, number: int, attempt: str = "") -> str:
    """Return the name of the file of *part* in one folder; *number* is 0 for its first file there.

    With an *attempt*, the files of a repeated range do not replace the earlier ones.
    """
    # An archive has one topic.
    nsqd = _UNSAFE.sub("_", part.producer.rpartition("@")[2])
    again = f"-{number}" if number else ""
    tried = f"-{attempt}" if attempt else ""
    return f"{nsqd}-{part.start}-{part.end}{again}{tried}{SUFFIX}"
