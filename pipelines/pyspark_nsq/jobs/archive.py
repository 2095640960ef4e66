"""``nsq-archive``: write a topic to Parquet files by date and hour of publishing.

nsq-archive --lookupd-http-address=127.0.0.1:4161 --topic=orders --channel=archive
            --output=archive/orders --checkpoint=archive/orders.checkpoint --available-now
"""

import sys
from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_nsq.jobs.archive_options import PROGRAM, ArchiveOptions, parse
from pyspark_nsq.jobs.running import fail, run_job
from pyspark_nsq.source.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pyspark_nsq.jobs.run import QueryRun
    from pyspark_nsq.parquet.delta import DeltaLog


def main(argv: Sequence[str] | None = None) -> int:
    """Archive until nothing is left or a signal comes; the exit code is 1 if something failed."""
    options = parse(sys.argv[1:] if argv is None else argv)
    if options.table and find_spec("deltalake") is None:
        return fail(PROGRAM, "deltalake is not installed; pip install 'pyspark-nsq[delta]' brings it")
    return run_job(
        PROGRAM,
        "archived",
        options.master,
        options.conf,
        lambda spark: start(spark, options),
        lambda: compact(options) if options.compact else 0,
    )


def compact(options: ArchiveOptions) -> int:
    """Merge the small files of the table; return the exit code."""
    try:
        done = _table(options).compact()
    except SourceError as error:
        return fail(PROGRAM, str(error))
    print(f"{done.removed} small files merged into {done.added}")
    return 0


def start(spark: "SparkSession", options: ArchiveOptions) -> "QueryRun":
    """Start the query of source, transforms and sink."""
    from pyspark_nsq.jobs.belonging import Belongings, check_belongs
    from pyspark_nsq.jobs.checkpoints import note_without_programs

    check_belongs(
        spark,
        Belongings(
            checkpoint=options.checkpoint,
            output=options.output,
            writer=options.writer,
            topic=options.source["topic"],
            channel=options.source["channel"],
            table=options.table,
        ),
    )
    if options.writer == "python":
        note_without_programs(spark, options.checkpoint)
        return _start_files(spark, options)
    # Spark's own sink also keeps notes in the output.
    note_without_programs(spark, options.checkpoint, options.output)
    return _start_rows(spark, options)


def _start_files(spark: "SparkSession", options: ArchiveOptions) -> "QueryRun":
    """Start a query in which the Python workers write the files and report them to Spark."""
    from pyspark_nsq.jobs.run import QueryRun
    from pyspark_nsq.parquet.places import is_uri, open_place
    from pyspark_nsq.parquet.source import OUTPUT, TABLE, NsqParquetSource
    from pyspark_nsq.unpacked import unpacked

    output = options.output if is_uri(options.output) else str(Path(options.output).absolute())
    with closing(open_place(output)) as place:
        # Unfinished files of tasks that were killed; their ranges are written again.
        place.tidy()
    with unpacked(spark.sparkContext):
        spark.dataSource.register(NsqParquetSource)
    messages_of: dict[int, int] = {}

    table = _table(options) if options.table else None

    def note(files: "DataFrame", batch: int) -> None:
        found = files.collect()
        messages_of[batch] = sum(file.messages for file in found)
        if table is not None:
            # The id is the same for all runs with this checkpoint.
            query = files.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            table.commit(query or "", batch, [(file.name, file.messages, file.bytes) for file in found])

    query = (
        spark.readStream.format("nsq-parquet")
        .options(**options.source, **{OUTPUT: output, TABLE: options.table})
        .load()
        .writeStream.foreachBatch(note)
        .queryName(options.source["topic"])
        .option("checkpointLocation", options.checkpoint)
        .trigger(**options.trigger)
        .start()
    )
    return QueryRun(query, lambda progress: messages_of.pop(progress.batchId, 0))


def _table(options: ArchiveOptions) -> "DeltaLog":
    from pyspark_nsq.parquet.delta import DeltaLog
    from pyspark_nsq.source.columns import ARROW_SCHEMA, ARROW_SCHEMA_WITH_HEADERS

    headers = "includeHeaders" in options.source
    return DeltaLog(options.output, ARROW_SCHEMA_WITH_HEADERS if headers else ARROW_SCHEMA)


def parquet_settings() -> dict[str, str]:
    """Return settings of Spark's own writer that suit the columns of messages."""
    from pyspark_nsq.source.columns import NOT_SEARCHED, UNIQUE

    # No value occurs twice in these columns, so Parquet would build a dictionary and then drop it. Statistics
    # with the smallest and the largest body help nobody to find a body.
    settings = {f"parquet.enable.dictionary#{column}": "false" for column in UNIQUE}
    # By default Parquet takes a hundred rows before it checks their size; with rows of 60 MB that is more
    # than Java has. After the first check it derives the interval from the size of the rows.
    settings |= {f"parquet.{unit}.size.row.check.min": "1" for unit in ("page", "block")}
    return settings | {f"parquet.column.statistics.enabled#{column}": "false" for column in NOT_SEARCHED}


def _start_rows(spark: "SparkSession", options: ArchiveOptions) -> "QueryRun":
    """Start a query in which the messages pass through Spark's rows into Spark's own writer."""
    from pyspark.sql.types import StructType

    from pyspark_nsq.jobs.run import QueryRun
    from pyspark_nsq.source.schema import CALENDAR, SCHEMA, SCHEMA_WITH_HEADERS
    from pyspark_nsq.transforms.by_hour import COLUMNS, by_expressions, by_hour, is_in_utc

    reader = spark.readStream.format("nsq").options(**options.source)
    if options.by:
        placed, folders = by_expressions(reader.load(), options.by)
    elif is_in_utc(spark):
        # The source provides day and hour, so Spark need not calculate them for every row.
        own = SCHEMA_WITH_HEADERS if "includeHeaders" in options.source else SCHEMA
        placed, folders = reader.schema(StructType([*own, *CALENDAR])).load(), COLUMNS
    else:
        placed, folders = by_hour(reader.load()), COLUMNS
    query = (
        placed.writeStream.format("parquet")
        .queryName(options.source["topic"])
        .options(**parquet_settings())
        .option("path", options.output)
        .option("checkpointLocation", options.checkpoint)
        .partitionBy(*folders)
        .trigger(**options.trigger)
        .start()
    )
    return QueryRun(query, lambda progress: progress.numInputRows)


if __name__ == "__main__":
    raise SystemExit(main())
