"""A checkpoint belongs to one topic, one channel and one output; a mix-up would silently lose messages.

Spark numbers the batches in the checkpoint, and keeps a list of the files of each batch in the output. With
another checkpoint it would mistake new batches for stored ones, skip them, and the source would acknowledge
them. With another topic it would continue at positions that have another meaning there.

Files that are named by their range have no batch numbers. With another checkpoint, messages that are already
stored would be stored again under other file names. Their output and its checkpoint have the same id in their
notes, so a checkpoint that was deleted and began again at the same place is another one.
"""

import json
import uuid
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
    known = (noted or {}).get("id")
    if noted is not None:
        # Notes without a writer are from the time when Spark's was the only one.
        before = noted | {"writer": noted.get("writer", "spark")}
        before.pop("pieces", None)  # from versions before each batch recorded its own cuts
        before.pop("id", None)
        if before != now:
            was = ", ".join(f"{name} {value}" for name, value in before.items())
            raise JobError(f"the checkpoint {used.checkpoint} belongs to {was}; each needs one of its own")
    output = _output(spark, used)
    written = json.loads(output.read(OUTPUT_NOTE) or "null")
    _check_writer(spark, used, output, written)
    if used.writer == "spark":
        if noted != now:
            state.write(NOTE, json.dumps(now))
        return
    if written is not None:
        began = noted is not None or _planned(spark, used.checkpoint) >= 0
        _check_written(used, written, known, began=began)
    identity = {"id": known or uuid.uuid4().hex}
    # The checkpoint's note comes first: with it alone the next run goes on.
    if noted != now | identity:
        state.write(NOTE, json.dumps(now | identity))
    if written != _of_output(used) | identity:
        output.write(OUTPUT_NOTE, json.dumps(_of_output(used) | identity))


def _output(spark: SparkSession, used: Belongings) -> "FilePlace | Folder":
    # Spark may not know the kind of place that the Python workers write to.
    if used.writer == "python" and is_uri(used.output):
        return open_place(used.output)
    return Folder(spark, used.output)


def _of_output(used: Belongings) -> dict[str, str]:
    return {"checkpoint": used.checkpoint} | ({"table": used.table} if used.table else {})


def _check_writer(
    spark: SparkSession, used: Belongings, output: "FilePlace | Folder", by_python: object
) -> None:
    """Raise JobError if the other writer has written to the output, or Spark with another checkpoint."""
    if isinstance(output, Folder):
        by_spark = max(_batches(Folder(spark, f"{used.output}/_spark_metadata")), default=-1)
    else:
        by_spark = -1 if output.read("_spark_metadata/0") is None else 0
    if used.writer == "python":
        if by_spark >= 0:
            # Spark would read its own list of files, which lacks the new ones.
            raise JobError(f"the output {used.output} was written with --writer=spark; go on with that")
        return
    if by_python is not None:
        raise JobError(f"the output {used.output} was written with --writer=python; go on with that")
    if by_spark > _planned(spark, used.checkpoint):
        raise _another_checkpoint(used)


def _check_written(used: Belongings, written: dict[str, str], known: str | None, *, began: bool) -> None:
    """Raise JobError unless the output was *written* with this checkpoint, whose id is *known*, and so on.

    Outputs of earlier versions have no id; of these it counts whether the checkpoint *began* before.
    """
    before = dict(written)
    identity = before.pop("id", None)
    same = began if identity is None else identity == known
    if not same or before["checkpoint"] != used.checkpoint:
        raise _another_checkpoint(used)
    if before != _of_output(used):
        was = f"with --table={before['table']}" if "table" in before else "without --table"
        raise JobError(f"the output {used.output} was begun {was}; go on {was}, or take a new output")


def _another_checkpoint(used: Belongings) -> JobError:
    return JobError(
        f"the output {used.output} was written with another checkpoint than {used.checkpoint}; "
        "use that one or a new output"
    )


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
