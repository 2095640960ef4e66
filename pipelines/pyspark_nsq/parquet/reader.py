"""Reads ranges as the source "nsq" does, and writes their messages to files."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pyspark_nsq.parquet.layout import BY_HOUR, PartitionColumn
from pyspark_nsq.parquet.range_files import RangeFiles, Written
from pyspark_nsq.parquet.storage import open_storage
from pyspark_nsq.source.arrays import numbers, repeated
from pyspark_nsq.source.columns import ARROW_SCHEMA, ARROW_SCHEMA_WITH_HEADERS
from pyspark_nsq.source.options import SourceOptions
from pyspark_nsq.source.planner import LogRange
from pyspark_nsq.source.stream_reader import NsqStreamReader

_ARROW_FILES: Final = pa.schema(
    [("path", pa.string()), ("name", pa.string()), ("messages", pa.int64()), ("bytes", pa.int64())]
)


class NsqParquetReader(NsqStreamReader):
    """Reads like its base class, and writes the messages to files."""

    def __init__(
        self,
        options: SourceOptions,
        output: str,
        table: str = "",
        by: Sequence[PartitionColumn] = BY_HOUR,
    ) -> None:
        super().__init__(options)
        self._by = by
        self._output = output
        self._table = table
        self._schema = ARROW_SCHEMA_WITH_HEADERS if options.include_headers else ARROW_SCHEMA

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = partition.value
        assert isinstance(part, LogRange)  # noqa: S101 - partitions() made it
        attempt = uuid.uuid4().hex if self._table else ""
        with (
            closing(open_storage(self._output)) as place,
            RangeFiles(place, part, self._schema, attempt, self._by) as files,
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
