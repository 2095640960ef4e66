"""``nsq-archive``: write a topic to Parquet files by date and hour of publishing.

nsq-archive --lookupd-http-address=127.0.0.1:4161 --topic=orders --channel=archive
            --output=archive/orders --checkpoint=archive/orders.checkpoint --available-now
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_nsq.jobs.archive_options import PROGRAM, ArchiveOptions, parse
from pyspark_nsq.jobs.running import run_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pyspark_nsq.jobs.run import QueryRun


def main(argv: Sequence[str] | None = None) -> int:
    """Archive until there is nothing more, or until a signal; the exit code is 1 when something failed."""
    options = parse(sys.argv[1:] if argv is None else argv)
    return run_job(PROGRAM, "archived", options.master, options.conf, lambda spark: start(spark, options))


def start(spark: "SparkSession", options: ArchiveOptions) -> "QueryRun":
    """Source, transform, sink."""
    from pyspark_nsq.jobs.belonging import Belongings, check_belongs

    check_belongs(
        spark,
        Belongings(
            checkpoint=options.checkpoint,
            output=options.output,
            writer=options.writer,
            topic=options.source["topic"],
            channel=options.source["channel"],
        ),
    )
    return (_start_files if options.writer == "python" else _start_rows)(spark, options)


def _start_files(spark: "SparkSession", options: ArchiveOptions) -> "QueryRun":
    """The Python workers write the files; Spark is told which."""
    from pyspark_nsq.jobs.run import QueryRun
    from pyspark_nsq.parquet.range_files import UNFINISHED
    from pyspark_nsq.parquet.source import OUTPUT, NsqParquetSource

    output = Path(options.output).absolute()
    # Left by tasks that were killed; their ranges are written again.
    shutil.rmtree(output / UNFINISHED, ignore_errors=True)
    spark.dataSource.register(NsqParquetSource)
    messages_of: dict[int, int] = {}

    def note(files: "DataFrame", batch: int) -> None:
        messages_of[batch] = sum(file.messages for file in files.collect())

    query = (
        spark.readStream.format("nsq-parquet")
        .options(**options.source, **{OUTPUT: str(output)})
        .load()
        .writeStream.foreachBatch(note)
        .option("checkpointLocation", options.checkpoint)
        .trigger(**options.trigger)
        .start()
    )
    return QueryRun(query, lambda progress: messages_of.get(progress.batchId, 0))


def _start_rows(spark: "SparkSession", options: ArchiveOptions) -> "QueryRun":
    """The messages go through Spark's rows into Spark's own writer."""
    from pyspark_nsq.jobs.run import QueryRun
    from pyspark_nsq.source.columns import NOT_SEARCHED, UNIQUE
    from pyspark_nsq.transforms.by_hour import COLUMNS, by_hour

    messages = spark.readStream.format("nsq").options(**options.source).load()
    # No value occurs twice in these columns, so Parquet would build a dictionary and then drop it. Statistics
    # with the smallest and the largest body do not help anyone to find a body.
    settings = {f"parquet.enable.dictionary#{column}": "false" for column in UNIQUE}
    settings |= {f"parquet.column.statistics.enabled#{column}": "false" for column in NOT_SEARCHED}
    query = (
        by_hour(messages)
        .writeStream.format("parquet")
        .options(**settings)
        .option("path", options.output)
        .option("checkpointLocation", options.checkpoint)
        .partitionBy(*COLUMNS)
        .trigger(**options.trigger)
        .start()
    )
    return QueryRun(query, lambda progress: progress.numInputRows)


if __name__ == "__main__":
    raise SystemExit(main())
