"""A checkpoint belongs to one topic, one channel and one output; a mix-up would silently lose messages.

With another topic a query would continue at positions that have another meaning there. With another
checkpoint, messages that are already stored would be stored again under other file names. Spark's own file
sink would even skip new batches, because it keeps a list of the batches in the output.

The output and its checkpoint have the same id in their notes, so a checkpoint that was deleted and began
again at the same place is another one.
"""

import json
import uuid
from typing import Any, Final

from pyspark.sql import SparkSession

from pyspark_nsq.jobs.archive_options import ArchiveOptions
from pyspark_nsq.jobs.session import JobError
from pyspark_nsq.parquet.storage import Storage

# The note in the checkpoint, among Spark's own files.
NOTE: Final = "nsq-archive.json"
# The note in the output; readers of Parquet skip names that begin with an underscore.
OUTPUT_NOTE: Final = "_nsq-archive.json"


def check_belongs(spark: SparkSession, used: ArchiveOptions, output: Storage) -> None:
    """Raise JobError unless checkpoint and output are both new, or were always used with these."""
    state = Folder(spark, used.checkpoint)
    now = {name: used.source[name] for name in ("topic", "channel")} | {"output": used.output}
    if used.by:
        now["by"] = ", ".join(used.by)
    noted = json.loads(state.read(NOTE) or "null")
    known = (noted or {}).get("id")
    if noted is not None:
        before = {name: value for name, value in noted.items() if name != "id"}
        if before != now:
            was = ", ".join(f"{name} {value}" for name, value in before.items())
            raise JobError(f"the checkpoint {used.checkpoint} belongs to {was}; each needs one of its own")
    written = json.loads(output.read(OUTPUT_NOTE) or "null")
    if written is not None:
        _check_written(used, written, known)
    elif output.read("_spark_metadata/0") is not None:
        # Spark stores a list of the files there. It would neither see our files nor write our batches.
        raise JobError(f"the output {used.output} was written by another query of Spark; take a new output")
    identity = {"id": known or uuid.uuid4().hex}
    # The checkpoint's note comes first: with it alone the next run continues.
    if noted != now | identity:
        state.write(NOTE, json.dumps(now | identity))
    if written != _of_output(used) | identity:
        output.write(OUTPUT_NOTE, json.dumps(_of_output(used) | identity))


def _of_output(used: ArchiveOptions) -> dict[str, str]:
    return {"checkpoint": used.checkpoint} | ({"table": used.table} if used.table else {})


def _check_written(used: ArchiveOptions, written: dict[str, str], known: str | None) -> None:
    """Raise JobError unless the output was *written* with this checkpoint, whose id is *known*, and so on."""
    before = dict(written)
    if before.pop("id", None) != known or before["checkpoint"] != used.checkpoint:
        raise JobError(
            f"the output {used.output} was written with another checkpoint than {used.checkpoint}; "
            "use that one or a new output"
        )
    if before != _of_output(used):
        was = f"with --table={before['table']}" if "table" in before else "without --table"
        raise JobError(f"the output {used.output} was begun {was}; continue {was}, or take a new output")


class Folder:
    """A folder wherever Spark can write: a local disk, HDFS, an object store."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._spark_path = jvm.org.apache.hadoop.fs.Path
        self._to_text = jvm.org.apache.commons.io.IOUtils.toString
        self._path = self._spark_path(path)
        self._files = self._path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

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
