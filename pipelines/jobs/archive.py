"""``nsq-archive``: write a topic to Parquet files by date and hour of publishing.

nsq-archive --lookupd-http-address=127.0.0.1:4161 --topic=orders --channel=archive
            --output=archive/orders --checkpoint=archive/orders.checkpoint --available-now
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nsqcore.service.arguments import ArgumentParser
from pipelines.source.errors import OptionError
from pipelines.source.options import SourceOptions, StartingOffsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PROGRAM = "nsq-archive"


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    source: dict[str, str]
    output: str
    checkpoint: str
    trigger: dict[str, Any]
    master: str
    conf: dict[str, str]


def main(argv: Sequence[str] | None = None) -> int:
    """Archive until there is nothing more, or until a signal; the exit code is 1 when something failed."""
    options = parse(sys.argv[1:] if argv is None else argv)
    if find_spec("pyspark") is None:
        return _fail("Spark is not installed; pip install 'nsq-cluster[spark]' brings it")
    from pipelines.jobs.session import JobError, run_until_end, sentence, spark_session

    began = time.monotonic()
    try:
        with spark_session(PROGRAM, options.master, options.conf) as spark:
            ready = time.monotonic()
            stored = run_until_end(start(spark, options))
            ended = time.monotonic()
    except JobError as error:
        return _fail(str(error))
    except Exception as error:  # noqa: BLE001 - whatever Spark throws ends as one sentence
        return _fail(sentence(error))
    rate = stored.messages / (ended - ready)
    print(
        f"{stored.messages} messages archived in {ended - ready:.1f} s, {rate:.0f} a second; "
        f"starting Spark took {ready - began:.1f} s"
    )
    return 0


def start(spark: "SparkSession", options: Options) -> "StreamingQuery":
    """Source, transform, sink."""
    from pipelines.jobs.belonging import check_belongs
    from pipelines.transforms.by_hour import COLUMNS, by_hour

    topic, channel = options.source["topic"], options.source["channel"]
    check_belongs(spark, options.checkpoint, options.output, topic, channel)
    messages = spark.readStream.format("nsq").options(**options.source).load()
    return (
        by_hour(messages)
        .writeStream.format("parquet")
        .option("path", options.output)
        .option("checkpointLocation", options.checkpoint)
        .partitionBy(*COLUMNS)
        .trigger(**options.trigger)
        .start()
    )


def parse(argv: Sequence[str]) -> Options:
    """Read the command line; ends the program with code 2 and one sentence when it cannot be used."""
    parser = ArgumentParser(
        prog=PROGRAM,
        description="Write a topic to Parquet files by date and hour of publishing, every message once.",
    )
    add = parser.add_argument
    add("--lookupd-http-address", action="append", default=[], metavar="HOST:PORT", help="may be repeated")
    add("--nsqd-http-address", action="append", default=[], metavar="HOST:PORT", help="instead of nsqlookupd")
    add("--topic", required=True)
    add("--channel", required=True, help="acknowledges what is stored; nobody else may consume it")
    add("--output", required=True, metavar="FOLDER", help="where the Parquet files go")
    add(
        "--checkpoint",
        required=True,
        metavar="FOLDER",
        help="where Spark notes how far it is; belongs to --output",
    )
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--available-now", action="store_true", help="archive what is there now, then end")
    when.add_argument("--trigger", default="10 seconds", metavar="INTERVAL", help="default: %(default)s")
    add("--starting-offsets", default="", help="|".join(member.value for member in StartingOffsets))
    add(
        "--max-offsets-per-trigger",
        default="500000",
        metavar="N",
        help="messages of one batch, default %(default)s",
    )
    add(
        "--min-partitions",
        default="",
        metavar="N",
        help="pieces a batch is cut into, default one for each nsqd",
    )
    add(
        "--fail-on-data-loss",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="end when a nsqd, or messages of it, are gone",
    )
    add("--retry-seconds", default="", metavar="N", help="how long a nsqd may be away, default 10")
    add(
        "--auth-secret-file",
        default="",
        metavar="FILE",
        help="with the AUTH secret, for nsqd with --http-auth; every executor reads it",
    )
    add("--master", default="", metavar="URL", help="Spark's master; default: spark-submit's, or local[*]")
    add(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark, may be repeated"
    )
    given = parser.parse_args(argv)
    source = {
        "lookupd_http_addresses": ",".join(given.lookupd_http_address),
        "nsqd_http_addresses": ",".join(given.nsqd_http_address),
        "topic": given.topic,
        "channel": given.channel,
        "startingOffsets": given.starting_offsets,
        "maxOffsetsPerTrigger": given.max_offsets_per_trigger,
        "minPartitions": given.min_partitions,
        "failOnDataLoss": str(given.fail_on_data_loss).lower(),
        "retrySeconds": given.retry_seconds,
        "authSecretFile": given.auth_secret_file,
    }
    try:
        SourceOptions.parse(source).for_stream()
    except OptionError as error:
        parser.error(str(error))
    conf: dict[str, str] = {}
    for setting in given.conf:
        key, equals, value = setting.partition("=")
        if not (key and equals):
            parser.error(f"--conf must be KEY=VALUE, not {setting!r}")
        conf[key] = value
    return Options(
        source=source,
        output=given.output,
        checkpoint=given.checkpoint,
        trigger={"availableNow": True} if given.available_now else {"processingTime": given.trigger},
        master=given.master,
        conf=conf,
    )


def _fail(reason: str) -> int:
    print(f"{PROGRAM}: {reason}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
