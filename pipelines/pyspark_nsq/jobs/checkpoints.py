"""How Spark writes its notes about a query if they are on a disk of this machine.

If Hadoop's native library is missing, as with the Spark of pip, Spark's default way starts the program
``readlink`` eight times for each file of notes. Another way writes and renames the same files without it. It
is as safe where a rename puts a file in place atomically, as on a disk; elsewhere the default stays.
"""

from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING: Final = "spark.sql.streaming.checkpointFileManagerClass"
_WITHOUT_PROGRAMS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def note_without_programs(spark: "SparkSession", *folders: str) -> None:
    """Choose the way without programs for a session whose queries keep their notes only in *folders*."""
    if spark.conf.get(SETTING, None) is None and all(_is_on_a_disk(spark, folder) for folder in folders):
        jvm: Any = spark.sparkContext._jvm
        try:
            jvm.java.lang.Class.forName(_WITHOUT_PROGRAMS)
        except Py4JJavaError:
            return  # another version of Spark has it elsewhere
        spark.conf.set(SETTING, _WITHOUT_PROGRAMS)


def _is_on_a_disk(spark: "SparkSession", folder: str) -> bool:
    jvm: Any = spark.sparkContext._jvm
    place = jvm.org.apache.hadoop.fs.Path(folder)
    files = place.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    return bool(files.getUri().getScheme() == "file")
