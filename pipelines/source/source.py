"""The data source "nsq": its name, its columns, and who reads."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pipelines.source.batch_reader import NsqBatchReader
from pipelines.source.options import SourceOptions
from pipelines.source.schema import SCHEMA
from pipelines.source.stream_reader import NsqStreamReader


class NsqDataSource(DataSource):
    """``spark.readStream.format("nsq")`` and ``spark.read.format("nsq")``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # Parsed here, so that load() reports a bad option, not the running query.
        self._parsed = SourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        return "nsq"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> NsqBatchReader:  # noqa: ARG002 - the columns are always these
        return NsqBatchReader(self._parsed)

    def streamReader(self, schema: StructType) -> NsqStreamReader:  # noqa: ARG002, N802 - Spark's name
        return NsqStreamReader(self._parsed)
