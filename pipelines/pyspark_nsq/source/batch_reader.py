"""A batch read: the messages in the topic's logs at the time of planning; no channel is changed."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pyspark_nsq.source.bounds import Bounds
from pyspark_nsq.source.cluster import FoundLog, TopicCluster
from pyspark_nsq.source.columns import Columns, MessageColumns
from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.log_reader import LOST, read_range
from pyspark_nsq.source.offsets import Offset, nsqd_of, topic_and_address
from pyspark_nsq.source.one_sentence import each_in_one_sentence, in_one_sentence
from pyspark_nsq.source.options import SourceOptions, StartingOffsets
from pyspark_nsq.source.planner import BatchLimits, LogRange, counts, plan_ranges, split
from pyspark_nsq.source.positions import check_positions, option_position
from pyspark_nsq.source.window import FilterWindow, TimeInterval


class NsqBatchReader(DataSourceReader):
    """A topic as a table: all messages of its logs, those pending on a channel, or a part of these."""

    def __init__(
        self, options: SourceOptions, columns: Columns | None = None, cores: int | None = None
    ) -> None:
        self._options = options.for_batch()
        self._columns = columns or MessageColumns.all(headers=options.include_headers)
        self._cores = cores or os.cpu_count() or 1
        self._window = FilterWindow()

    @in_one_sentence
    def partitions(self) -> Sequence[InputPartition]:
        cluster = TopicCluster(self._options)
        cluster.wait_until_listed()
        found = cluster.survey_once()
        check_positions(self._options, found)
        found = {name: log for name, log in found.items() if self._window.has_log(*topic_and_address(name))}
        logs = {name: log.bounds for name, log in found.items()}
        start = {name: self._first(name, log) for name, log in found.items()}
        end = {name: max(start[name], self._end(name, log)) for name, log in found.items()}
        limits = BatchLimits(
            partitions=self._options.min_partitions,
            partition_rows=self._options.max_records_per_partition,
            cores=self._cores,
        )
        sizes = {name: one.average for name, one in cluster.sizes(found).items()}
        cuts = split(start, end, logs, limits, sizes)
        planned = Offset(
            end,
            data_paths={name: log.data_path for name, log in logs.items() if log.data_path},
            cuts=cuts,
            counts=counts(cuts, end, logs),
        )
        cluster.close()
        ranges = plan_ranges(Offset(start), planned, _names_of(found))
        return [
            # nsqd may remove the first messages between planning and reading, as it may have before planning.
            InputPartition(replace(part, from_log_start=self._given_start(part.producer) is None))
            for part in ranges
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = partition.value
        if part is None:
            # If there is nothing to read, Spark plans a partition without content.
            return iter(())
        assert isinstance(part, LogRange)  # noqa: S101 - partitions() made it
        topic = part.topic
        start_ns, end_ns = self._options.starting_ns(topic), self._options.ending_ns(topic)
        times = replace(self._window.times_us)
        times.limit(
            None if start_ns is None else start_ns // 1000, None if end_ns is None else end_ns // 1000 - 1
        )
        columns = TimeInterval(self._columns, times) if times.is_limited else self._columns
        return each_in_one_sentence(read_range(part, self._options, LOST, columns))

    def _first(self, name: str, log: FoundLog) -> int:
        """Return the first position to read, as options and filters say."""
        first = self._given_start(name)
        first = self._position(name, log.bounds) if first is None else first
        return max(first, log.bounds.first, self._window.sequences.first or 0)

    def _end(self, name: str, log: FoundLog) -> int:
        """Return the position after the last one to read."""
        end = option_position(self._options.ending_positions, *topic_and_address(name))
        last = self._window.sequences.last
        limits = (end, None if last is None else last + 1, log.bounds.readable_end)
        return min(limit for limit in limits if limit is not None)

    def _given_start(self, name: str) -> int | None:
        return option_position(self._options.starting_positions, *topic_and_address(name))

    def _position(self, name: str, log: Bounds) -> int:
        if self._options.starting_offsets is not StartingOffsets.ACKNOWLEDGED:
            return log.first
        position = log.acknowledged.get(self._options.channel)
        if position is None:
            raise SourceError(f"channel {self._options.channel!r} does not exist on nsqd {nsqd_of(name)}")
        return position


class NsqFilteredReader(NsqBatchReader):
    """The same with filters, for a Spark that passes them on; any other Spark refuses such a reader."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take filters that the window knows; Spark itself applies the filters that are returned."""
        return [one for one in filters if not self._window.narrow(one)]


def _names_of(found: Mapping[str, FoundLog]) -> dict[str, str]:
    return {name: log.address for name, log in found.items()}
