"""The command line of ``nsq-archive``, read before Spark is started."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark_nsq.jobs.arguments import JobArguments, options_of_nodes
from pyspark_nsq.parquet.layout import SCHEMES, PartitionColumn
from pyspark_nsq.source.errors import OptionError
from pyspark_nsq.source.options import SourceOptions, StartingOffsets

PROGRAM: Final = "nsq-archive"
TABLES: Final = ("delta",)
_UNITS: Final = r"(?:microsecond|millisecond|second|minute|hour|day|week)s?"
_INTERVAL: Final = re.compile(rf"(?:interval\s+)?\d+\s+{_UNITS}(?:\s+\d+\s+{_UNITS})*", re.IGNORECASE)


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
    parser = _parser()
    given = parser.parse_args(argv)
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
        source=_source(parser, given),
        output=given.output,
        table=given.table,
        compact=given.compact,
        by=tuple(given.by),
        checkpoint=given.checkpoint,
        trigger={"availableNow": True} if given.available_now else {"processingTime": given.trigger},
        master=given.master,
        conf=_conf(parser, given.conf),
    )


def _parser() -> JobArguments:
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
    parser.add_nodes()
    add("--topic", required=True)
    add("--channel", required=True, help="acknowledges what is stored; no other consumer may use it")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--available-now", action="store_true", help="take what is there now, then end")
    when.add_argument(
        "--trigger", type=interval, default="10 seconds", metavar="INTERVAL", help="default: %(default)s"
    )
    add("--starting-offsets", default="", help="|".join(member.value for member in StartingOffsets))
    add(
        "--max-offsets-per-trigger",
        default="2000000",
        metavar="N",
        help="messages of one batch, default %(default)s",
    )
    add(
        "--min-partitions",
        default="",
        metavar="N",
        help="pieces a batch is cut into, default one for each core of the cluster",
    )
    add(
        "--fail-on-data-loss",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="end when an nsqd or some of its messages are gone",
    )
    add("--retry-seconds", default="", metavar="N", help="how long an nsqd may be away, default 10")
    add(
        "--forget-nsqd",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="it will not come back; one run is enough",
    )
    add("--master", default="", metavar="URL", help="Spark's master; default: spark-submit's, or local[*]")
    add(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark, may be repeated"
    )
    return parser


def interval(text: str) -> str:
    """The ``type`` of an argument such as ``10 seconds``, in Spark's form. Raises ArgumentTypeError."""
    if not _INTERVAL.fullmatch(text.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is no interval such as '10 seconds' or '1 minute'")
    return text.strip()


def _source(parser: JobArguments, given: argparse.Namespace) -> dict[str, str]:
    """Return the options of the data source. Ends the program if they are invalid."""
    source = {
        **options_of_nodes(given),
        "topic": given.topic,
        "channel": given.channel,
        "startingOffsets": given.starting_offsets,
        "maxOffsetsPerTrigger": given.max_offsets_per_trigger,
        "minPartitions": given.min_partitions,
        "failOnDataLoss": str(given.fail_on_data_loss).lower(),
        "retryTimeout": given.retry_seconds,
        "forgetNsqds": ",".join(given.forget_nsqd),
        **({"includeHeaders": "true"} if given.headers else {}),
    }
    try:
        parsed = SourceOptions.parse(source).for_stream()
    except OptionError as error:
        parser.error(error.sentence)
    if not parsed.topic:
        parser.error("--topic must be one topic")
    return source


def _conf(parser: JobArguments, settings: Sequence[str]) -> dict[str, str]:
    """Return the settings of Spark."""
    conf: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not (key and equals):
            parser.error(f"--conf must be KEY=VALUE, not {setting!r}")
        conf[key] = value
    return conf
