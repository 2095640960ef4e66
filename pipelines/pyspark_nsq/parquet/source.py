"""The data source "nsq-parquet": each task writes the Parquet files of its range; the rows are those files.

The messages never leave the Python worker, which saves the transfer to the JVM, the conversion to rows and a
sort. Offsets, acknowledging and repeated batches work as in the source "nsq".
"""

import uuid
from collections.abc import Iterator, MutableMapping
from contextlib import closing
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import LongType, StringType, StructType

from pyspark_nsq.parquet.places import open_place
from pyspark_nsq.parquet.range_files import RangeFiles, Written
from pyspark_nsq.source.arrays import numbers, repeated
from pyspark_nsq.source.columns import ARROW_SCHEMA, ARROW_SCHEMA_WITH_HEADERS
from pyspark_nsq.source.one_sentence import in_one_sentence
from pyspark_nsq.source.options import SourceOptions
from pyspark_nsq.source.planner import LogRange
from pyspark_nsq.source.stream_reader import NsqStreamReader

OUTPUT: Final = "output"
# Whether the files of each attempt have their own names, because a table says which of them count.
TABLE: Final = "table"
FILES: Final = (
    StructType()
    .add("path", StringType())
    .add("name", StringType())
    .add("messages", LongType())
    .add("bytes", LongType())
)
_ARROW_FILES: Final = pa.schema(
    [("path", pa.string()), ("name", pa.string()), ("messages", pa.int64()), ("bytes", pa.int64())]
)


class NsqParquetSource(DataSource):
    """``spark.readStream.format("nsq-parquet")``; its sink only has to note the files."""

    @in_one_sentence
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        given = dict(options)
        # An absolute path, or a URI: the executors may run in another folder.
        self._output = given.pop(OUTPUT)
        self._table = given.pop(TABLE, "")
        self._parsed = SourceOptions.parse(given)

    @classmethod
    def name(cls) -> str:
        return "nsq-parquet"

    def schema(self) -> StructType:
        return FILES

    def streamReader(self, schema: StructType) -> "NsqParquetReader":  # noqa: ARG002, N802 - Spark's name
        return NsqParquetReader(self._parsed, self._output, self._table)


class NsqParquetReader(NsqStreamReader):
    """Reads as its base class does, and writes what it has read."""

    def __init__(self, options: SourceOptions, output: str, table: str = "") -> None:
        super().__init__(options)
        self._output = output
        self._table = table
        self._schema = ARROW_SCHEMA_WITH_HEADERS if options.include_headers else ARROW_SCHEMA

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = partition.value
        assert isinstance(part, LogRange)  # noqa: S101 - partitions() made it
        attempt = uuid.uuid4().hex if self._table else ""
        with (
            closing(open_place(self._output)) as place,
            RangeFiles(place, part, self._schema, attempt) as files,
        ):
            for batch in super().read(partition):
                for written in files.write(batch):
                    yield _row(written)
            for written in files.finish():
                yield _row(written)


def _row(file: Written) -> pa.RecordBatch:
    texts = (repeated(text, 1, pa.string()) for text in (file.path, file.name))
    counts = (numbers(np.array([count], np.int64), pa.int64()) for count in (file.messages, file.size))
    return pa.RecordBatch.from_arrays([*texts, *counts], schema=_ARROW_FILES)
