"""``nsq-archive``: write a topic to Parquet files, by default by date and hour of publishing.

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
    """Start a query in which the Python workers write the files and report them to Spark."""
    from pyspark_nsq.jobs.belonging import Belongings, Folder, check_belongs
    from pyspark_nsq.jobs.run import QueryRun
    from pyspark_nsq.parquet.source import BY, OUTPUT, TABLE, NsqParquetSource
    from pyspark_nsq.parquet.storage import is_uri, open_storage
    from pyspark_nsq.unpacked import unpacked

    check_belongs(
        spark,
        Belongings(
            checkpoint=options.checkpoint,
            output=options.output,
            topic=options.source["topic"],
            channel=options.source["channel"],
            table=options.table,
            by=options.by,
        ),
        # Spark may not know the kind of place that the Python workers write to.
        open_storage(options.output) if is_uri(options.output) else Folder(spark, options.output),
    )
    output = options.output if is_uri(options.output) else str(Path(options.output).absolute())
    with closing(open_storage(output)) as place:
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
        .options(**options.source, **{OUTPUT: output, TABLE: options.table, BY: "\n".join(options.by)})
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


if __name__ == "__main__":
    raise SystemExit(main())
