"""``nsq-spark count``: the number of messages of a topic in each span of time, as a growing table.

nsq-spark count --lookupd-http-address=127.0.0.1:4161 --topic=orders --channel=counts
                --window="1 minute" --output=counts/orders --checkpoint=counts/orders.checkpoint
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark_nsq.jobs.arguments import (
    JobArguments,
    add_source,
    add_spark,
    conf_of,
    interval,
    source_of,
    trigger_of,
)
from pyspark_nsq.jobs.running import run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_nsq.jobs.run import QueryRun

PROGRAM: Final = "nsq-spark count"


@dataclass(frozen=True, slots=True)
class CountOptions:
    """The parsed command line."""

    source: dict[str, str]
    window: str
    watermark: str
    output: str
    checkpoint: str
    trigger: dict[str, Any]
    master: str
    conf: dict[str, str]


def parse(argv: Sequence[str]) -> CountOptions:
    """Read the command line. Ends the program with code 2 and one sentence if it is invalid."""
    parser = JobArguments(
        prog=PROGRAM,
        description="Count the messages of a topic and their bytes by the time of publishing. A span of time "
        "is written once, when the watermark has passed its end.",
    )
    add = parser.add_argument
    add("--output", required=True, metavar="FOLDER", help="where the Parquet files go")
    add("--checkpoint", required=True, metavar="FOLDER", help="where Spark notes how far it is")
    add("--window", type=interval, default="1 minute", metavar="INTERVAL", help="default: %(default)s")
    add(
        "--watermark",
        type=interval,
        default="10 minutes",
        metavar="INTERVAL",
        help="how much later than the newest a message may come and still be counted, default %(default)s",
    )
    add_source(parser, "acknowledges what is counted; no other consumer may use it")
    add_spark(parser)
    given = parser.parse_args(argv)
    return CountOptions(
        source=source_of(parser, given),
        window=given.window,
        watermark=given.watermark,
        output=given.output,
        checkpoint=given.checkpoint,
        trigger=trigger_of(given),
        master=given.master,
        conf=conf_of(parser, given),
    )


def main(argv: Sequence[str]) -> int:
    """Count until nothing is left or a signal comes; the exit code is 1 if something failed."""
    options = parse(argv)
    conf = {"spark.sql.shuffle.partitions": "2", **options.conf}
    return run_job(PROGRAM, "counted", options.master, conf, lambda spark: start(spark, options))


def start(spark: "SparkSession", options: CountOptions) -> "QueryRun":
    """Start the query of source, windows and sink."""
    from pyspark.sql import functions as f

    from pyspark_nsq.jobs.belonging import Belongings, Folder, check_belongs
    from pyspark_nsq.jobs.run import QueryRun

    topic, channel = options.source["topic"], options.source["channel"]
    used = Belongings(options.checkpoint, options.output, topic, channel)
    check_belongs(spark, used, Folder(spark, options.output))
    messages = spark.readStream.format("nsq").options(**options.source).load()
    counts = (
        messages.withWatermark("timestamp", options.watermark)
        .groupBy(f.window("timestamp", options.window), "nsqd")
        .agg(f.count("*").alias("messages"), f.sum(f.length("body")).alias("bytes"))
        .select("window.start", "window.end", "nsqd", "messages", "bytes")
    )
    query = (
        counts.writeStream.format("parquet")
        .queryName(options.source["topic"])
        .option("path", options.output)
        .option("checkpointLocation", options.checkpoint)
        .trigger(**options.trigger)
        .start()
    )
    return QueryRun(query, lambda progress: progress.numInputRows)
