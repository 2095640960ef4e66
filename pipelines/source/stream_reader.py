"""Driver side of a stream: what the next batch is, and acknowledging what Spark has stored."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pipelines.source.bounds import Bounds
from pipelines.source.cluster import NewChannel, TopicCluster
from pipelines.source.errors import SourceError
from pipelines.source.log_reader import LOST_TO_A_STREAM, read_range
from pipelines.source.offsets import Offsets, moved, ordered, parse_offsets
from pipelines.source.options import SourceOptions, StartingOffsets
from pipelines.source.planner import LogRange, next_offsets, plan_ranges


class NsqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic as an unbounded table.

    Spark calls everything but :meth:`read` on one instance, in a process beside the driver; :meth:`read` runs
    on copies in the executors.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options.for_stream()
        self._cluster = TopicCluster(self._options)
        self._initial: Offsets | None = None
        # With Trigger.AvailableNow: where this run ends.
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._acknowledged: Offsets = {}

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name, as are those below
        """Where a query begins that has no checkpoint."""
        # Spark may ask twice and takes the answers for the same.
        if self._initial is None:
            wanted = self._options.starting_offsets or StartingOffsets.ACKNOWLEDGED
            earliest = wanted is StartingOffsets.EARLIEST
            channel = NewChannel.FROM_EARLIEST if earliest else NewChannel.FROM_NOW
            bounds = self._cluster.survey((), channel)
            self._initial = ordered(
                {producer: self._position(producer, log, wanted) for producer, log in bounds.items()}
            )
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note where the logs end now; this run reads no further."""
        # A nsqlookupd that was just restarted knows of nothing yet; what the checkpoint knows comes later.
        # The channel is made later: how depends on whether this is the beginning of the query.
        bounds = self._cluster.survey((), NewChannel.NONE, must_exist=False)
        self._target = {producer: log.readable_end for producer, log in bounds.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Offsets:  # noqa: N802
        """Where the batch ends that begins at *start*."""
        begin = parse_offsets(start)
        # A producer that joins had messages before it was found, perhaps while nsqlookupd was away.
        bounds = self._cluster.survey(begin, NewChannel.FROM_EARLIEST)
        self._latest = ordered({producer: log.readable_end for producer, log in bounds.items()})
        if self._target is not None:
            bounds = self._until_target(begin, bounds)
        end = next_offsets(
            begin,
            bounds,
            limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            fail_on_data_loss=self._options.fail_on_data_loss,
            # A query that begins with the earliest message is behind its channel on purpose.
            channel=""
            if self._options.starting_offsets is StartingOffsets.EARLIEST
            else self._options.channel,
        )
        for producer, log in bounds.items():
            if producer not in begin:
                end[producer] = self._position(producer, log, StartingOffsets.ACKNOWLEDGED)
        # Spark asks for a batch when the one before it is stored, so all before *start* is. It calls commit()
        # only if there is more to read, but a channel must become empty when all of it was read.
        self._acknowledge(begin)
        return ordered(end)

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = plan_ranges(parse_offsets(start), parse_offsets(end), self._options.min_partitions)
        return [InputPartition(part) for part in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = partition.value
        assert isinstance(part, LogRange)  # noqa: S101 - partitions() made it
        # What others finished and nsqd compacted away is lost to a query that has not read it.
        return read_range(part, self._options, LOST_TO_A_STREAM)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge what lies before *end*: Spark has stored it."""
        self._acknowledge(parse_offsets(end))

    def _acknowledge(self, positions: Offsets) -> None:
        self._acknowledged |= self._cluster.acknowledge(moved(self._acknowledged, positions))

    def _position(self, producer: str, log: Bounds, wanted: StartingOffsets) -> int:
        if wanted is StartingOffsets.EARLIEST:
            return log.first
        if wanted is StartingOffsets.LATEST:
            return log.end
        position = log.acknowledged.get(self._options.channel)
        if position is None:
            # It was created a moment ago.
            raise SourceError(f"channel {self._options.channel!r} was removed from nsqd {producer}")
        return position

    def _until_target(self, begin: Offsets, bounds: dict[str, Bounds]) -> dict[str, Bounds]:
        """The logs as they were when the run began; producers that came later are not of it."""
        target = self._target if self._target is not None else {}
        for producer, log in bounds.items():
            if producer in begin:
                # Known from the checkpoint, but not listed when the run began.
                target.setdefault(producer, log.readable_end)
        return {
            producer: log.until(target[producer]) for producer, log in bounds.items() if producer in target
        }
