"""``nsq-archive``: write a topic to Parquet files, by default by date and hour of publishing.

nsq-archive --lookupd-http-address=127.0.0.1:4161 --topic=orders --channel=archive
            --output=archive/orders --checkpoint=archive/orders.checkpoint --available-now
"""

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_nsq.jobs.archive_options import PROGRAM, ArchiveOptions, parse
from pyspark_nsq.jobs.arguments import fail
from pyspark_nsq.jobs.signals import stop_signals
from pyspark_nsq.source.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pyspark_nsq.jobs.run import QueryRun
    from pyspark_nsq.parquet.delta import DeltaLog


def main(argv: Sequence[str] | None = None) -> int:
    """Archive until nothing is left or a signal comes; the exit code is 1 if something failed."""
    options = parse(sys.argv[1:] if argv is None else argv)
    for package, extra in (("pyspark", "spark"), *((("deltalake", "delta"),) if options.table else ())):
        if find_spec(package) is None:
            return fail(PROGRAM, f"{package} is not installed; pip install 'pyspark-nsq[{extra}]' brings it")
    # Imported here, because Spark may be absent.
    from pyspark_nsq.jobs.run import run_until_end
    from pyspark_nsq.jobs.sentences import sentence
    from pyspark_nsq.jobs.session import JobError, spark_session

    began = time.monotonic()
    messages = 0
    try:
        with stop_signals() as stop, spark_session(PROGRAM, options.master, options.conf) as spark:
            ready = time.monotonic()
            if not stop.asked:
                messages = run_until_end(start(spark, options), stop)
            ended = time.monotonic()
    except JobError as error:
        return fail(PROGRAM, str(error))
    except Exception as error:  # noqa: BLE001 - every error of Spark is reported in one sentence
        return fail(PROGRAM, sentence(error))
    print(
        f"{messages} messages archived in {ended - ready:.1f} s, {messages / (ended - ready):.0f} a second; "
        f"starting Spark took {ready - began:.1f} s"
    )
    # After a signal there may be no time to compact.
    return compact(options) if options.compact and not stop.asked else 0


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
    from pyspark_nsq.jobs.belonging import check_belongs
    from pyspark_nsq.jobs.run import QueryRun
    from pyspark_nsq.parquet.source import BY, OUTPUT, TABLE, NsqParquetSource
    from pyspark_nsq.parquet.storage import is_uri, open_storage
    from pyspark_nsq.unpacked import unpacked

    output = options.output if is_uri(options.output) else str(Path(options.output).absolute())
    with closing(open_storage(output)) as place:
        check_belongs(spark, options, place)
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
