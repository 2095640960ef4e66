"""The command line of ``nsq-archive``, read before Spark is started."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark_nsq.jobs.arguments import (
    JobArguments,
    add_source,
    add_spark,
    conf_of,
    source_of,
    trigger_of,
)
from pyspark_nsq.parquet.layout import SCHEMES, PartitionColumn

PROGRAM: Final = "nsq-archive"
TABLES: Final = ("delta",)


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """The parsed command line."""

    source: dict[str, str]
    output: str
    table: str
    compact: bool
    by: tuple[str, ...]
    checkpoint: str
    trigger: dict[str, Any]
    master: str
    conf: dict[str, str]


def parse(argv: Sequence[str]) -> ArchiveOptions:
    """Read the command line. Ends the program with code 2 and one sentence if it is invalid."""
    parser = JobArguments(
        prog=PROGRAM,
        description="Write a topic to Parquet files by date and hour of publishing, every message once.",
    )
    add = parser.add_argument
    add(
        "--output",
        required=True,
        metavar="FOLDER",
        help="where the Parquet files go: a folder that all executors see, or s3://, gs://, hdfs://",
    )
    add(
        "--table",
        choices=TABLES,
        default="",
        help="delta: also a Delta table over the files, each batch one commit; needs deltalake",
    )
    add(
        "--compact",
        action="store_true",
        help="merge small files at the end, with --table=delta and --available-now; readers notice nothing",
    )
    add(
        "--by",
        action="append",
        default=[],
        metavar="COLUMN",
        help="a folder for each value of this column, instead of date and hour: date, hour, or NAME=$.MEMBER "
        "for a member of JSON bodies; may be repeated",
    )
    add(
        "--checkpoint",
        required=True,
        metavar="FOLDER",
        help="where Spark notes how far it is; belongs to --output",
    )
    add(
        "--headers",
        action="store_true",
        help="also the headers of messages, as a column of maps; files from before have none",
    )
    add_source(parser, "acknowledges what is stored; no other consumer may use it")
    add_spark(parser)
    given = parser.parse_args(argv)
    source = source_of(parser, given)
    if given.headers:
        source["includeHeaders"] = "true"
    scheme, mark, _ = given.output.partition("://")
    if mark and scheme not in SCHEMES:
        parser.error(
            f"--output={given.output} must be a folder or begin with "
            f"{', '.join(f'{one}://' for one in SCHEMES)}"
        )
    if given.table and (mark or given.by):
        parser.error(f"--table={given.table} needs a folder of this machine, and excludes --by")
    if given.compact and not (given.table and given.available_now):
        parser.error(
            "--compact needs --table=delta, whose readers notice nothing of it, and --available-now; "
            "files in a plain folder cannot be merged while a reader lists them"
        )
    for one in given.by:
        try:
            PartitionColumn.parse(one)
        except ValueError as error:
            parser.error(f"--by={error}")
    return ArchiveOptions(
        source=source,
        output=given.output,
        table=given.table,
        compact=given.compact,
        by=tuple(given.by),
        checkpoint=given.checkpoint,
        trigger=trigger_of(given),
        master=given.master,
        conf=conf_of(parser, given),
    )
