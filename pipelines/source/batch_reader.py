"""A batch read: what the topic's logs hold at the moment of planning, without touching any channel."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pipelines.source.bounds import Bounds
from pipelines.source.cluster import NewChannel, TopicCluster
from pipelines.source.errors import SourceError
from pipelines.source.log_reader import LOST, read_range
from pipelines.source.options import SourceOptions, StartingOffsets
from pipelines.source.planner import LogRange, plan_ranges


class NsqBatchReader(DataSourceReader):
    """A topic as a table: all that is kept, or what a channel still owes."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options.for_batch()

    def partitions(self) -> Sequence[InputPartition]:
        bounds = TopicCluster(self._options).survey((), NewChannel.NONE)
        start = {producer: self._position(producer, log) for producer, log in bounds.items()}
        end = {producer: log.readable_end for producer, log in bounds.items()}
        return [InputPartition(part) for part in plan_ranges(start, end, self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = partition.value
        if part is None:
            # Spark plans one partition of its own when there is nothing to read.
            return iter(())
        assert isinstance(part, LogRange)  # noqa: S101 - partitions() made it
        return read_range(part, self._options, LOST)

    def _position(self, producer: str, log: Bounds) -> int:
        if self._options.starting_offsets is not StartingOffsets.ACKNOWLEDGED:
            return log.first
        position = log.acknowledged.get(self._options.channel)
        if position is None:
            raise SourceError(f"channel {self._options.channel!r} does not exist on nsqd {producer}")
        return position
