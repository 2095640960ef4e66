"""``python -m pyspark_nsq.jobs.class_data``: store the classes that Spark loads in a file.

At each start Spark reads and checks some 15,000 classes. With the file, Java maps them into memory instead.
Java does so only if Java and all jars are still the same, so an old file does no harm.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from pyspark_nsq.jobs.session import CLASS_DATA, JAVA_OPTIONS, QUIET_CLASS_DATA, spark_session

_END_TIMEOUT_S: Final = 120


def main() -> int:
    """Run a small job like ``nsq-archive``, and store the classes that it loaded."""
    remove_leftovers()
    unfinished = CLASS_DATA.with_name(f"{CLASS_DATA.name}.{os.getpid()}")
    conf = {JAVA_OPTIONS: f"-XX:ArchiveClassesAtExit={unfinished} {QUIET_CLASS_DATA}"}
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with spark_session("class data", "local[1]", conf) as spark, tempfile.TemporaryDirectory() as folder:
            _exercise(spark, folder)
        _end_java()
        unfinished.rename(CLASS_DATA)
    except KeyboardInterrupt:
        print("stopped; nothing is kept", file=sys.stderr)
        return 1
    finally:
        # Java writes the file when it exits, so it must exit before this program.
        _kill_java()
        unfinished.unlink(missing_ok=True)
        signal.signal(signal.SIGTERM, before)
    print(f"{CLASS_DATA}: {CLASS_DATA.stat().st_size >> 20} MiB of classes")
    return 0


def remove_leftovers() -> None:
    """Remove the files of earlier runs that were killed."""
    for path in CLASS_DATA.parent.glob(f"{CLASS_DATA.name}.*"):
        pid = path.suffix.removeprefix(".")
        if pid.isdecimal() and not Path("/proc", pid).exists():
            path.unlink(missing_ok=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


class _Numbers(DataSource):
    """A stream with one row."""

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
    """Run both ways of ``nsq-archive``: collected rows, and rows that Spark writes by hour."""
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
    """Make the JVM exit, and wait until it has: it writes the file then."""
    gateway = SparkContext._gateway
    assert gateway is not None  # noqa: S101 - a session was there
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_END_TIMEOUT_S)


def _kill_java() -> None:
    """Kill the JVM in any state, even one that is still starting and is no gateway of Spark's yet."""
    gateway = SparkContext._gateway
    if gateway is not None and gateway.proc.poll() is None:
        gateway.proc.kill()
        gateway.proc.wait(_END_TIMEOUT_S)
    for child in _children():
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _children() -> list[int]:
    """Return the processes that this one has started; none if the system has no ``/proc``."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # Behind the name, which may contain anything, come state and parent.
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(stat.parent.name))
    return found


if __name__ == "__main__":
    sys.exit(main())
