"""``python -m pipelines.jobs.class_data``: keep the classes that Spark loads in a file.

A start of Spark reads and checks some 15,000 classes. With the file, Java maps them into memory instead.
It does so only if Java and all jars are still the same, so an old file does no harm.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from pipelines.jobs.session import CLASS_DATA, JAVA_OPTIONS, QUIET_CLASS_DATA, spark_session

_END_TIMEOUT_S: Final = 120


def main() -> int:
    """Run a small job like ``nsq-archive``, and keep the classes that it loaded."""
    unfinished = CLASS_DATA.with_name(f"{CLASS_DATA.name}.{os.getpid()}")
    conf = {JAVA_OPTIONS: f"-XX:ArchiveClassesAtExit={unfinished} {QUIET_CLASS_DATA}"}
    try:
        with spark_session("class data", "local[1]", conf) as spark, tempfile.TemporaryDirectory() as folder:
            _exercise(spark, folder)
        _end_java()
        unfinished.rename(CLASS_DATA)
    finally:
        unfinished.unlink(missing_ok=True)
    print(f"{CLASS_DATA}: {CLASS_DATA.stat().st_size >> 20} MiB of classes")
    return 0


class _Numbers(DataSource):
    """A stream of one row."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "number long"

    def streamReader(self, schema: object) -> "_NumbersReader":  # noqa: ARG002, N802 - Spark's name
        return _NumbersReader()


class _NumbersReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name, as are those below
        return {"next": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802
        return {"next": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:  # noqa: ARG002
        return [InputPartition(start["next"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"number": [partition.value]})


def _exercise(spark: SparkSession, folder: str) -> None:
    """Both ways of ``nsq-archive``: rows that are collected, and rows that Spark writes by hour."""
    spark.dataSource.register(_Numbers)

    def collect(batch: DataFrame, _number: int) -> None:
        batch.collect()

    numbers = spark.readStream.format("numbers").load()
    by_hour = numbers.selectExpr("number", "current_date() AS date", "hour(current_timestamp()) AS hour")
    for name, writer in {
        "collected": numbers.writeStream.foreachBatch(collect),
        "written": by_hour.writeStream.format("parquet")
        .partitionBy("date", "hour")
        .option("path", f"{folder}/output"),
    }.items():
        query = writer.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True).start()
        query.awaitTermination()


def _end_java() -> None:
    """Have the JVM exit, and wait until it has: it writes the archive then."""
    gateway = SparkContext._gateway
    assert gateway is not None  # noqa: S101 - a session was there
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_END_TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(main())
