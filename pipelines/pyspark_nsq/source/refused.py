"""A stream reader that only reports why the stream cannot be read."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.one_sentence import in_one_sentence

if TYPE_CHECKING:
    # Spark 4.1 does not have it, and this reader says so.
    from pyspark.sql.streaming.datasource import ReadLimit


class RefusedStream(DataSourceStreamReader):
    """Raises the error in its first answer, because Spark loses errors that occur while a reader is made."""

    def __init__(self, error: SourceError) -> None:
        self._error = error

    @in_one_sentence
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as are those below
        raise self._error

    @in_one_sentence
    def latestOffset(self, start: dict[str, Any], limit: "ReadLimit") -> dict[str, Any]:  # noqa: ARG002, N802
        raise self._error

    @in_one_sentence
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        raise self._error

    @in_one_sentence
    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802
        raise self._error
