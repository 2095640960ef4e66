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

PROGRAM: Final = "nsq-archive"
WRITERS: Final = ("python", "spark")


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """What the command line says."""

    source: dict[str, str]
    output: str
    writer: str
    checkpoint: str
    trigger: dict[str, Any]
    master: str
    conf: dict[str, str]


def parse(argv: Sequence[str]) -> ArchiveOptions:
    """Read the command line; ends the program with code 2 and one sentence when it cannot be used."""
    parser = JobArguments(
        prog=PROGRAM,
        description="Write a topic to Parquet files by date and hour of publishing, every message once.",
    )
    add = parser.add_argument
    add("--output", required=True, metavar="FOLDER", help="where the Parquet files go")
    add(
        "--writer",
        choices=WRITERS,
        default=WRITERS[0],
        help="python (default): fast, whole files only, to a folder that all executors see; "
        "spark: to wherever Spark can write, for readers that are Spark",
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
    if given.writer == "python" and "://" in given.output:
        parser.error(f"--output={given.output} is no folder of this machine; it needs --writer=spark")
    return ArchiveOptions(
        source=source,
        output=given.output,
        writer=given.writer,
        checkpoint=given.checkpoint,
        trigger=trigger_of(given),
        master=given.master,
        conf=conf_of(parser, given),
    )
