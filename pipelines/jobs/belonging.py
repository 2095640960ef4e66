"""A checkpoint belongs to one topic, one channel and one output; a mix-up would lose messages without a word.

Spark counts batches in the checkpoint, and the files of each in the output. With another checkpoint it would
take new batches for ones it has stored, leave them out, and have them acknowledged. With another topic it
would go on at positions that mean something else there.
"""

import json
from typing import Any, Final

from pyspark.sql import SparkSession

from pipelines.jobs.session import JobError

# Beside Spark's own files.
NOTE: Final = "nsq-archive.json"


def check_belongs(spark: SparkSession, checkpoint: str, output: str, topic: str, channel: str) -> None:
    """Raise JobError unless the checkpoint is new, with a new output, or was always used with these."""
    state = Folder(spark, checkpoint)
    used_for = {"topic": topic, "channel": channel, "output": output}
    noted = state.read(NOTE)
    if noted is not None and json.loads(noted) != used_for:
        was = ", ".join(f"{name} {value}" for name, value in json.loads(noted).items())
        raise JobError(f"the checkpoint {checkpoint} belongs to {was}; each needs one of its own")
    stored = max(_batches(Folder(spark, f"{output}/_spark_metadata")), default=-1)
    planned = max(_batches(Folder(spark, f"{checkpoint}/offsets")), default=-1)
    if stored > planned:
        raise JobError(
            f"the output {output} was written with another checkpoint than {checkpoint}; "
            "use that one or a new output"
        )
    if noted is None:
        state.write(NOTE, json.dumps(used_for))


def _batches(folder: "Folder") -> list[int]:
    """The batches of which Spark keeps a file here; some names end in ".compact"."""
    names = [name.removesuffix(".compact") for name in folder.names()]
    return [int(name) for name in names if name.isdigit()]


class Folder:
    """A folder wherever Spark can write: this disk, HDFS, an object store."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._spark_path = jvm.org.apache.hadoop.fs.Path
        self._to_text = jvm.org.apache.commons.io.IOUtils.toString
        self._path = self._spark_path(path)
        self._files = self._path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

    def names(self) -> list[str]:
        """The names of what lies in it; none when it does not exist."""
        if not self._files.exists(self._path):
            return []
        return [status.getPath().getName() for status in self._files.listStatus(self._path)]

    def read(self, name: str) -> str | None:
        """The text of a file; None when there is none of that name."""
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
