"""Driver side of a stream: what the next batch is, and acknowledging what Spark has stored."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

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
from pipelines.source.errors import DataLossError, SourceError
from pipelines.source.log_reader import LOST_TO_A_STREAM, read_range
from pipelines.source.offsets import Offsets, moved, ordered, parse_ahead, parse_offsets, with_ahead
from pipelines.source.options import SourceOptions, StartingOffsets
from pipelines.source.planner import LogRange, next_offsets, plan_ranges

# A key beside the nsqds in the latest offset that is reported: how many messages are in no batch yet.
LAG: Final = "lag"

_warnings: Final = logging.getLogger("pipelines.source")


class NsqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic as an unbounded table.

    Spark calls everything but :meth:`read` on one instance, in a process beside the driver; :meth:`read` runs
    on copies in the executors.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options.for_stream()
        self._cluster = TopicCluster(self._options)
        self._initial: dict[str, Any] | None = None
        # With Trigger.AvailableNow: where this run ends.
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._acknowledged: Offsets = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as are those below
        """Where a query begins that has no checkpoint."""
        # Spark may ask twice and expects the same answer.
        if self._initial is None:
            wanted = self._options.starting_offsets or StartingOffsets.ACKNOWLEDGED
            earliest = wanted is StartingOffsets.EARLIEST
            channel = NewChannel.FROM_EARLIEST if earliest else NewChannel.FROM_NOW
            bounds = self._cluster.survey((), channel)
            begin = {producer: self._position(producer, log, wanted) for producer, log in bounds.items()}
            self._initial = with_ahead(begin, self._ahead(begin, bounds) if earliest else {})
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note where the logs end now; this run reads no further."""
        # An nsqlookupd that was just restarted may know no nsqd yet; those of the checkpoint are added later.
        # The channel is also made later, because how depends on whether the query has a checkpoint.
        bounds = self._cluster.survey((), NewChannel.NONE, must_exist=False)
        self._target = {producer: log.readable_end for producer, log in bounds.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the batch ends that begins at *start*."""
        begin, ahead = self._without_forgotten(parse_offsets(start)), parse_ahead(start)
        # A producer that joins had messages before it was found, perhaps while nsqlookupd was away.
        bounds = self._cluster.survey(begin, NewChannel.FROM_EARLIEST)
        logs = bounds
        if self._target is not None:
            bounds = self._until_target(begin, bounds)
        end = next_offsets(
            begin,
            bounds,
            limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            fail_on_data_loss=self._options.fail_on_data_loss,
            channel=self._options.channel,
            ahead=ahead,
        )
        for producer, log in bounds.items():
            if producer not in begin:
                end[producer] = self._position(producer, log, StartingOffsets.ACKNOWLEDGED)
        self._latest = ordered({producer: log.readable_end for producer, log in logs.items()})
        # Positions jump when nsqd restarts, so their difference is not a number of messages.
        self._latest[LAG] = sum(log.count(end.get(producer, log.first)) for producer, log in logs.items())
        # Spark asks for the next batch when the previous one is stored, so everything before *start* is
        # stored. It calls commit() only if there is more to read, but the channel must become empty after
        # the last batch.
        self._acknowledge(begin)
        if end != begin:
            # The batch that gets past this position still has it, because its ranges depend on it.
            ahead = {
                producer: stood for producer, stood in ahead.items() if begin.get(producer, stood) < stood
            }
        return with_ahead(end, ahead)

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        """For the query's progress: where the logs end, and how much is left after the batch."""
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = plan_ranges(
            parse_offsets(start), parse_offsets(end), self._options.min_partitions, parse_ahead(end)
        )
        # The batch may have been planned before a producer was declared gone for good.
        forgotten = self._options.forget_nsqds
        return [InputPartition(part) for part in ranges if part.producer not in forgotten]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = partition.value
        assert isinstance(part, LogRange)  # noqa: S101 - partitions() made it
        return read_range(part, self._options, LOST_TO_A_STREAM)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge what lies before *end*: Spark has stored it."""
        self._acknowledge(parse_offsets(end))

    def _acknowledge(self, positions: Offsets) -> None:
        still = moved(self._acknowledged, positions)
        for producer in self._options.forget_nsqds:
            still.pop(producer, None)
        self._acknowledged |= self._cluster.acknowledge(still)

    def _without_forgotten(self, begin: Offsets) -> Offsets:
        """The positions without those of forgotten nsqds.

        Raises DataLossError when an nsqd that is to be forgotten answers and has messages to read.
        """
        forgotten = begin.keys() & set(self._options.forget_nsqds)
        if not forgotten:
            return begin
        for producer, log in self._cluster.still_there(forgotten).items():
            unread = log.count(begin[producer])
            if unread:
                raise DataLossError(
                    f"option forgetNsqds has nsqd {producer}, which answers, "
                    f"and the query has not read {unread} of its messages"
                )
        for producer in sorted(forgotten):
            _warnings.warning("nsqd %s is forgotten; it was read up to %d", producer, begin[producer])
        return {producer: position for producer, position in begin.items() if producer not in forgotten}

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

    def _ahead(self, begin: Offsets, bounds: dict[str, Bounds]) -> Offsets:
        """Where an older channel stands that has finished some of what the query will read."""
        stands = {
            producer: log.acknowledged.get(self._options.channel, 0) for producer, log in bounds.items()
        }
        return {
            producer: stands[producer]
            for producer, log in bounds.items()
            if log.count(stands[producer]) < log.count(begin[producer])
        }

    def _until_target(self, begin: Offsets, bounds: dict[str, Bounds]) -> dict[str, Bounds]:
        """The logs as they were when the run began, without producers that came later."""
        target = self._target if self._target is not None else {}
        for producer, log in bounds.items():
            if producer in begin:
                # Known from the checkpoint, but not listed when the run began.
                target.setdefault(producer, log.readable_end)
        return {
            producer: log.until(target[producer]) for producer, log in bounds.items() if producer in target
        }
