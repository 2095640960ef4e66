"""The data source "nsq-parquet": each task writes the Parquet files of its range; its rows name these files.

The messages never leave the Python worker, which saves the transfer to the JVM, the conversion to rows and a
sort. Offsets, acknowledging and repeated batches work as in the source "nsq".
"""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import LongType, StringType, StructType

from pyspark_nsq.parquet.layout import BY_HOUR, PartitionColumn
from pyspark_nsq.source.one_sentence import in_one_sentence
from pyspark_nsq.source.options import SourceOptions

if TYPE_CHECKING:
    from pyspark_nsq.parquet.reader import NsqParquetReader

OUTPUT: Final = "output"
# Whether the files of each attempt have their own names, because a table tells which of them count.
TABLE: Final = "table"
# The partition columns, one in each line.
BY: Final = "by"
FILES: Final = (
    StructType()
    .add("path", StringType())
    .add("name", StringType())
    .add("messages", LongType())
    .add("bytes", LongType())
)


class NsqParquetSource(DataSource):
    """``spark.readStream.format("nsq-parquet")``; its sink only has to record the files."""

    @in_one_sentence
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        given = dict(options)
        # An absolute path, or a URI: the executors may run in another folder.
        self._output = given.pop(OUTPUT)
        self._table = given.pop(TABLE, "")
        self._by = tuple(map(PartitionColumn.parse, given.pop(BY, "").splitlines())) or BY_HOUR
        self._parsed = SourceOptions.parse(given)

    @classmethod
    def name(cls) -> str:
        return "nsq-parquet"

    def schema(self) -> StructType:
        return FILES

    def streamReader(self, schema: StructType) -> "NsqParquetReader":  # noqa: ARG002, N802 - Spark's name
        # Imported here, because only the processes that plan and read need it.
        from pyspark_nsq.parquet.reader import NsqParquetReader

        return NsqParquetReader(self._parsed, self._output, self._table, self._by)
