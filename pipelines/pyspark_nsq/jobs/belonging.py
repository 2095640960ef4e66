"""A checkpoint belongs to one topic, one channel and one output; a mix-up would silently lose messages.

Spark numbers the batches in the checkpoint, and keeps a list of the files of each batch in the output. With
another checkpoint it would mistake new batches for stored ones, skip them, and the source would acknowledge
them. With another topic it would continue at positions that have another meaning there.

Files that are named by their range have no batch numbers. With another checkpoint, messages that are already
stored would be stored again under other file names.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from pyspark_nsq.jobs.session import JobError
from pyspark_nsq.parquet.places import FilePlace, is_uri, open_place

# The note in the checkpoint, beside Spark's own files.
NOTE: Final = "nsq-archive.json"
# The note in the output; readers of Parquet skip names that begin with an underscore.
OUTPUT_NOTE: Final = "_nsq-archive.json"


@dataclass(frozen=True, slots=True)
class Belongings:
    """A checkpoint and everything it is used with."""

    checkpoint: str
    output: str
    writer: str
    topic: str
    channel: str
    table: str = ""


def check_belongs(spark: SparkSession, used: Belongings) -> None:
    """Raise JobError unless checkpoint and output are both new, or were always used with these."""
    state = Folder(spark, used.checkpoint)
    now = {"topic": used.topic, "channel": used.channel, "output": used.output, "writer": used.writer}
    noted = json.loads(state.read(NOTE) or "null")
    if noted is not None:
        # Notes without a writer are from the time when Spark's was the only one.
        before = noted | {"writer": noted.get("writer", "spark")}
        before.pop("pieces", None)  # from versions before each batch recorded its own cuts
        if before != now:
            was = ", ".join(f"{name} {value}" for name, value in before.items())
            raise JobError(f"the checkpoint {used.checkpoint} belongs to {was}; each needs one of its own")
    _check_output(spark, used)
    if noted != now:
        state.write(NOTE, json.dumps(now))


def _check_output(spark: SparkSession, used: Belongings) -> None:
    output: FilePlace | Folder
    if used.writer == "python" and is_uri(used.output):
        # Spark may not know this kind of place.
        output = open_place(used.output)
        by_spark = -1 if output.read("_spark_metadata/0") is None else 0
    else:
        output = Folder(spark, used.output)
        by_spark = max(_batches(Folder(spark, f"{used.output}/_spark_metadata")), default=-1)
    by_python = output.read(OUTPUT_NOTE)
    other_checkpoint = JobError(
        f"the output {used.output} was written with another checkpoint than {used.checkpoint}; "
        "use that one or a new output"
    )
    if used.writer == "spark":
        if by_python is not None:
            raise JobError(f"the output {used.output} was written with --writer=python; go on with that")
        if by_spark > _planned(spark, used.checkpoint):
            raise other_checkpoint
        return
    if by_spark >= 0:
        # Spark would read its own list of files, which lacks the new ones.
        raise JobError(f"the output {used.output} was written with --writer=spark; go on with that")
    now = {"checkpoint": used.checkpoint} | ({"table": used.table} if used.table else {})
    if by_python is None:
        output.write(OUTPUT_NOTE, json.dumps(now))
        return
    before = json.loads(by_python)
    if before["checkpoint"] != used.checkpoint:
        raise other_checkpoint
    if before != now:
        was = f"with --table={before['table']}" if "table" in before else "without --table"
        raise JobError(f"the output {used.output} was begun {was}; go on {was}, or take a new output")


def _planned(spark: SparkSession, checkpoint: str) -> int:
    return max(_batches(Folder(spark, f"{checkpoint}/offsets")), default=-1)


def _batches(folder: "Folder") -> list[int]:
    """Return the batches that have a file in *folder*; some names end in ".compact"."""
    names = [name.removesuffix(".compact") for name in folder.names()]
    return [int(name) for name in names if name.isdigit()]


class Folder:
    """A folder wherever Spark can write: a local disk, HDFS, an object store."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._spark_path = jvm.org.apache.hadoop.fs.Path
        self._to_text = jvm.org.apache.commons.io.IOUtils.toString
        self._path = self._spark_path(path)
        self._files = self._path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

    def names(self) -> list[str]:
        """Return the names of the files in it; an empty list if it does not exist."""
        if not self._files.exists(self._path):
            return []
        return [status.getPath().getName() for status in self._files.listStatus(self._path)]

    def read(self, name: str) -> str | None:
        """Return the text of a file; None if it does not exist."""
        path = self._spark_path(self._path, name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return str(self._to_text(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        stream = self._files.create(self._spark_path(self._path, name), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
