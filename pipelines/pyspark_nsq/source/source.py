"""The data source "nsq": its name, its columns, its readers and writers."""

import sys
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_nsq.sink.options import NAMES as SINK_NAMES
from pyspark_nsq.sink.options import SinkOptions, without_sparks_own
from pyspark_nsq.source.errors import OptionError, SourceError
from pyspark_nsq.source.one_sentence import in_one_sentence
from pyspark_nsq.source.options import ALIASES, INSTEAD, NAMES, BodyFormat, OptionReader, SourceOptions
from pyspark_nsq.source.schema import SCHEMA, SCHEMA_WITH_HEADERS

# Readers and writers are loaded only by processes that use them. A process that is only asked for the columns
# is new, and the user waits for it.
if TYPE_CHECKING:
    import pyarrow as pa

    # Spark 4.1 does not have it, and RefusedStream says so.
    from pyspark.sql.streaming.datasource import ReadLimit

    from pyspark_nsq.sink.writer import NsqStreamWriter, NsqWriter
    from pyspark_nsq.source.batch_reader import NsqBatchReader
    from pyspark_nsq.source.columns import Columns
    from pyspark_nsq.source.stream_reader import NsqStreamReader

# The module that Spark runs to pass filters on, if that is allowed.
_PASSES_FILTERS: Final = "pyspark.sql.worker.data_source_pushdown_filters"


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
    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:  # noqa: ARG002
        raise self._error

    @in_one_sentence
    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802
        raise self._error


class NsqDataSource(DataSource):
    """``spark.readStream.format("nsq")`` and ``spark.read.format("nsq")``."""

    # The number of cores of the cluster, if known; see :func:`pyspark_nsq.register`.
    cores: ClassVar[int | None] = None
    # Whether the schema was inferred and is stored nowhere.
    _is_passing = False

    @in_one_sentence
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        if "provider" in options:
            raise OptionError(
                "the format nsq is for views and not for tables of a catalog, to which Spark passes no "
                "options: CREATE TEMPORARY VIEW orders USING nsq OPTIONS (topic 'orders', ...)"
            )
        # Here it is unknown whether rows are read or written, but a name that neither knows is a
        # mistake.
        OptionReader(
            without_sparks_own(options),
            tuple(dict.fromkeys((*NAMES, *SINK_NAMES))),
            ALIASES,
            INSTEAD,
        )

    @classmethod
    def name(cls) -> str:
        return "nsq"

    @in_one_sentence
    def schema(self) -> StructType:
        # load() calls this, so a bad option is reported there and not by the running query.
        options = self._parsed()
        if options.body_format is BodyFormat.JSON:
            from pyspark_nsq.source.schema_file import schema_of

            # Spark passes this object on to other processes.
            self._is_passing = not options.schema_location
            return schema_of(options)
        return SCHEMA_WITH_HEADERS if options.include_headers else SCHEMA

    @in_one_sentence
    def reader(self, schema: StructType) -> "NsqBatchReader":
        from pyspark_nsq.source.batch_reader import NsqBatchReader, NsqFilteredReader

        kind = NsqFilteredReader if _PASSES_FILTERS in sys.modules else NsqBatchReader
        return kind(self._parsed(), self._columns(schema), self.cores)

    def streamReader(self, schema: StructType) -> "NsqStreamReader | RefusedStream":  # noqa: N802 - Spark's name

        try:
            from pyspark_nsq.source.stream_reader import NsqStreamReader
        except ModuleNotFoundError as error:
            if error.name != "pyspark.sql.streaming.datasource":
                raise
            return RefusedStream(
                OptionError(
                    f"a stream needs Spark 4.2 or newer, and this is Spark {pyspark.__version__}, with which "
                    "the format nsq reads and writes batches only"
                )
            )
        try:
            if self._is_passing:
                raise OptionError(
                    'option bodyFormat is json, which in a stream needs a schema, as in .schema("customer '
                    'long, price double"), or option schemaLocation: a file that keeps '
                    "what was found out"
                )
            return NsqStreamReader(self._parsed(), self._columns(schema), self.cores)
        except SourceError as error:
            return RefusedStream(error)

    @in_one_sentence
    def writer(self, schema: StructType, overwrite: bool) -> "NsqWriter":
        from pyspark_nsq.sink.writer import NsqWriter

        return NsqWriter(SinkOptions.parse(self.options), schema, overwrite=overwrite)

    @in_one_sentence
    def streamWriter(self, schema: StructType, overwrite: bool) -> "NsqStreamWriter":  # noqa: N802, ARG002
        from pyspark_nsq.sink.writer import NsqStreamWriter

        # In complete mode Spark asks to overwrite, and every batch has all rows.
        return NsqStreamWriter(SinkOptions.parse(self.options), schema, overwrite=False)

    def _parsed(self) -> SourceOptions:
        return SourceOptions.parse(self.options)

    def _columns(self, schema: StructType) -> "Columns":
        from pyspark_nsq.source.columns import MessageColumns

        options = self._parsed()
        if options.body_format is BodyFormat.JSON:
            # Imported here, because few processes need Arrow's parser and Spark's types for it.
            from pyspark_nsq.source.json_columns import JsonColumns

            return JsonColumns(schema, headers=options.include_headers)
        return MessageColumns.of(schema)
