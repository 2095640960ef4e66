"""Runs next to the driver: plans the next batch of a stream, and acknowledges stored messages."""

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_nsq.source.bounds import Bounds
from pyspark_nsq.source.cluster import FoundLog, NewChannel, TopicCluster
from pyspark_nsq.source.columns import Columns, MessageColumns
from pyspark_nsq.source.errors import CheckpointError, DataLossError, SourceError
from pyspark_nsq.source.log_reader import LOST_TO_A_STREAM, read_range
from pyspark_nsq.source.offsets import Offset, Offsets, moved, nsqd_of, topic_and_address, topic_of
from pyspark_nsq.source.one_sentence import each_in_one_sentence, in_one_sentence
from pyspark_nsq.source.options import SourceOptions, StartingOffsets
from pyspark_nsq.source.planner import (
    BatchLimits,
    LogRange,
    check_not_skipped,
    counts,
    loss_reason,
    next_positions,
    plan_ranges,
    split,
)
from pyspark_nsq.source.positions import check_positions, option_position, position_at

# Keys other than the logs in the latest offset that is reported: how many messages are in no batch yet.
LAG: Final = "lag"
LAGS: Final = "lags"
# A query without a trigger asks again immediately. While nothing is published, each wait is longer.
_MIN_PAUSE_S: Final = 0.01
_MAX_PAUSE_S: Final = 1.0

_warnings: Final = logging.getLogger("pyspark_nsq.source")


class NsqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic as an unbounded table.

    Spark calls everything except :meth:`read` on one instance, in a process next to the driver; :meth:`read`
    runs on copies in the executors.
    """

    def __init__(
        self, options: SourceOptions, columns: Columns | None = None, cores: int | None = None
    ) -> None:
        """*cores* is their number in the cluster; without it, the number on this machine counts."""
        self._options = options.for_stream()
        self._columns = columns or MessageColumns.all(headers=options.include_headers)
        self._cores = cores or os.cpu_count() or 1
        self._cluster = TopicCluster(self._options)
        self._initial: dict[str, Any] | None = None
        # With Trigger.AvailableNow: the position where this run ends in each log.
        self._target: Offsets | None = None
        self._latest: dict[str, Any] | None = None
        self._acknowledged: Offsets = {}
        # The address of each log at the last lookup.
        self._addresses: dict[str, str] = {}
        # The pause before the next lookup, the time of the last one, and since when too few messages are
        # pending.
        self._pause_s = 0.0
        self._discovered_at = 0.0
        self._waiting_since: float | None = None
        # How many batches this reader has planned.
        self._batches = 0

    @in_one_sentence
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as are those below
        """Return where a query without a checkpoint begins."""
        # Spark may call this twice and expects the same answer.
        if self._initial is None:
            wanted = self._options.starting_offsets or StartingOffsets.ACKNOWLEDGED
            back = bool(self._options.starting_positions) or bool(self._options.starting_timestamps_ns)
            earliest = wanted is StartingOffsets.EARLIEST or back
            channel = NewChannel.FROM_EARLIEST if earliest else NewChannel.FROM_NOW
            found = self._cluster.survey(Offset({}), channel)
            check_positions(self._options, found)
            begin = {name: self._start_position(name, log, wanted) for name, log in found.items()}
            if wanted is StartingOffsets.ACKNOWLEDGED and not back:
                self._retain(begin, found)
            self._initial = Offset(
                begin,
                ahead=self._ahead(begin, found) if earliest else {},
                data_paths=_data_paths(found),
                channel=self._options.channel,
            ).json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @in_one_sentence
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record where the logs end now; this run reads no further."""
        # An nsqlookupd that was just restarted may know no nsqd yet; those of the checkpoint are added later.
        # The channel is also created later, because how depends on whether the query has a checkpoint.
        found = self._cluster.survey(Offset({}), NewChannel.NONE, must_exist=False)
        self._target = {self._key(name, log.bounds): log.bounds.readable_end for name, log in found.items()}

    @in_one_sentence
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the batch that begins at *start* ends."""
        self._pause()
        begin = self._without_removed(self._parsed(start))
        # A log that joins had messages before it was found, perhaps while nsqlookupd was down.
        found = self._cluster.survey(begin, NewChannel.FROM_EARLIEST, idle=self._pause_s > 0)
        self._addresses |= {name: log.address for name, log in found.items()}
        logs = {name: log.bounds for name, log in found.items()}
        if self._options.fail_on_data_loss:
            for name in logs.keys() & begin.positions.keys():
                check_not_skipped(
                    name,
                    begin.positions[name],
                    logs[name],
                    self._options.channel,
                    begin.ahead.get(name, 0),
                )
        readable = logs if self._target is None else self._until_target(begin.positions, logs)
        limits = self._limits(limit)
        known = {name: found[name] for name in readable if name in begin.positions}
        some = {name: log for name, log in known.items() if readable[name].count(begin.positions[name]) > 0}
        sizes = self._sizes(some, limits)
        end = next_positions(
            begin.positions,
            readable,
            limits,
            sizes,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        if self._is_below_minimum(limit, sum(readable[name].count(begin.positions[name]) for name in some)):
            end = dict(begin.positions)
        joined = {name: found[name] for name in readable if name not in begin.positions}
        for name, log in joined.items():
            end[name] = self._position(name, log.bounds, StartingOffsets.ACKNOWLEDGED)
        self._warn_of_consumed(joined)
        # Positions jump when nsqd restarts, so their difference is not a number of messages.
        lags = {name: log.count(end.get(name, log.first)) for name, log in sorted(logs.items())}
        ends = {name: log.readable_end for name, log in sorted(logs.items())}
        self._latest = {**ends, LAG: sum(lags.values()), LAGS: lags}
        # Spark asks for the next batch when the previous one is stored, so everything before *start* is
        # stored. It calls commit() only if there is more to read, but the channel must also become empty
        # after the last batch.
        self._acknowledge(begin)
        if end == begin.positions and begin.positions == self._parsed(start).positions:
            self._pause_s = min(max(2 * self._pause_s, _MIN_PAUSE_S), _MAX_PAUSE_S)
            return start
        self._pause_s = 0.0
        self._batches += 1
        return self._offset(begin, end, readable, limits, sizes, found).json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return where the logs end and how much is left after the batch, for the query's progress."""
        return self._latest

    @in_one_sentence
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planned = self._parsed(end)
        if not self._addresses:
            # The batch was planned in an earlier run, and an nsqd may have another address now.
            self._addresses = self._cluster.addresses(planned)
        ranges = plan_ranges(self._parsed(start), planned, self._addresses)
        # The batch may have been planned before an nsqd or a topic was declared permanently gone.
        return [
            InputPartition(part)
            for part in ranges
            if not self._is_forgotten(part.producer, planned)
            and part.topic not in self._options.forget_topics
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = partition.value
        assert isinstance(part, LogRange)  # noqa: S101 - partitions() made it
        return each_in_one_sentence(read_range(part, self._options, LOST_TO_A_STREAM, self._columns))

    @in_one_sentence
    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge everything before *end*, because Spark has stored it."""
        self._acknowledge(self._parsed(end))

    def stop(self) -> None:
        self._cluster.close()

    # --- one batch

    def _pause(self) -> None:
        """Wait if the last lookup found nothing and is recent."""
        left = self._discovered_at + self._pause_s - time.monotonic()
        if self._target is None and left > 0:
            time.sleep(left)
        self._discovered_at = time.monotonic()

    def _limits(self, limit: ReadLimit) -> BatchLimits:
        # If everything is to be read, Spark does not apply the limits of the options.
        size = None if isinstance(limit, ReadAllAvailable) else self._options.max_bytes_per_trigger
        return BatchLimits(
            rows=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            size=limit.max_bytes if isinstance(limit, ReadMaxBytes) else size,
            partitions=self._options.min_partitions,
            partition_rows=self._options.max_records_per_partition,
            cores=self._cores,
            turn=self._batches,
        )

    def _sizes(self, logs: Mapping[str, FoundLog], limits: BatchLimits) -> dict[str, float]:
        """Return the average bytes of a message of each log; empty if they do not matter."""
        if not logs or (limits.size is None and max(limits.partitions or limits.cores, len(logs)) == 1):
            return {}
        return {name: one.average for name, one in self._cluster.sizes(logs).items()}

    def _is_below_minimum(self, limit: ReadLimit, messages: int) -> bool:
        """Whether to wait for more messages before the next batch."""
        least = self._options.min_offsets_per_trigger
        if least is None or isinstance(limit, ReadAllAvailable) or self._target is not None or not messages:
            self._waiting_since = None
            return False
        now = time.monotonic()
        self._waiting_since = self._waiting_since or now
        if messages < least and now - self._waiting_since < self._options.max_trigger_delay_s:
            return True
        self._waiting_since = None
        return False

    def _offset(
        self,
        begin: Offset,
        end: Offsets,
        logs: Mapping[str, Bounds],
        limits: BatchLimits,
        sizes: Mapping[str, float],
        found: Mapping[str, FoundLog],
    ) -> Offset:
        """Return the offset of a batch that ends at *end*."""
        paths = {name: path for name, path in begin.data_paths.items() if name in end} | {
            name: path for name, path in _data_paths(found).items() if name in end
        }
        addresses = {name: address for name, address in begin.addresses.items() if name in end}
        addresses |= {name: log.address for name, log in found.items() if name in end}
        cuts = split(begin.positions, end, logs, limits, sizes)
        return Offset(
            end,
            # The batch that passes this position keeps it, because its ranges depend on it.
            ahead={
                name: stood for name, stood in begin.ahead.items() if begin.positions.get(name, stood) < stood
            },
            data_paths=paths,
            addresses={name: address for name, address in addresses.items() if address != nsqd_of(name)},
            cuts=cuts,
            counts=counts(cuts, end, logs),
            channel=self._options.channel,
        )

    def _warn_of_consumed(self, joined: Mapping[str, FoundLog]) -> None:
        """Log how many messages of a joining log others had consumed before the query found it."""
        own = {name: log for name, log in joined.items() if not log.bounds.is_copy}
        for name, published in (self._cluster.sizes(own) if own else {}).items():
            kept = own[name].bounds.count(0)
            if published.messages > kept:
                _warnings.warning(
                    "topic %s of nsqd %s joins the query with %d messages; %d earlier ones were consumed by "
                    "others before the query found it, and are not in its rows",
                    *topic_and_address(name),
                    kept,
                    published.messages - kept,
                )

    def _acknowledge(self, offset: Offset) -> None:
        still = moved(self._acknowledged, offset.positions)
        for name in list(still):
            if self._is_forgotten(name, offset):
                del still[name]
        where = {name: self._addresses.get(name) or offset.address(name) for name in still}
        self._acknowledged |= self._cluster.acknowledge(still, where, offset.data_paths)

    def _parsed(self, value: Any) -> Offset:
        """Read an offset of the checkpoint. Raises CheckpointError if it is of other topics or channels."""
        offset = Offset.parse(value, self._options.topic)
        channel, topics = offset.channel or self._options.channel, offset.topics
        kept = any(self._options.is_chosen(topic) or topic in self._options.forget_topics for topic in topics)
        if channel == self._options.channel and (kept or not topics):
            return offset
        raise CheckpointError(
            f"the checkpoint is of topic {', '.join(map(repr, sorted(topics)))} and channel {channel!r}, but "
            f"the query reads topic {self._options.described} on channel {self._options.channel!r}: "
            "it needs a checkpoint of its own"
        )

    def _without_removed(self, begin: Offset) -> Offset:
        """Return the offset without forgotten nsqds and topics, and without topics that are no longer read.

        Raises DataLossError if a log to be forgotten still exists and has messages to read.
        """
        options = self._options
        if options.forget_nsqds and not self._addresses:
            self._addresses = self._cluster.addresses(begin)
        nsqds = {name for name in begin.positions if self._is_forgotten(name, begin)}
        topics = {name for name in begin.positions if not options.is_chosen(topic_of(name))} - nsqds
        self._check_read(begin, nsqds, "forgetNsqds")
        self._check_read(
            begin,
            {name for name in topics if topic_of(name) in options.forget_topics},
            "forgetTopics",
        )
        for name in sorted(nsqds):
            _warnings.warning(
                "nsqd %s is forgotten; it was read up to %d", nsqd_of(name), begin.positions[name]
            )
        for name in sorted(topics):
            _warnings.warning(
                "topic %r of nsqd %s is no longer read; it was read up to %d. "
                "Its channel %r keeps messages until it is deleted",
                *topic_and_address(name),
                begin.positions[name],
                options.channel,
            )
        if topics:
            # If the topic is read again later, it continues where the channel is.
            self._acknowledge(
                begin.select({name for name in topics if topic_of(name) not in options.forget_topics})
            )
        removed = nsqds | topics
        return begin.select(begin.positions.keys() - removed) if removed else begin

    def _is_forgotten(self, name: str, offset: Offset) -> bool:
        """Whether a log is on an nsqd that is to be forgotten, and not on another one now."""
        found = self._addresses.get(name)
        places = {offset.address(name), nsqd_of(name)} if found is None else {found}
        return bool(places & set(self._options.forget_nsqds))

    def _check_read(self, begin: Offset, forgotten: set[str], option: str) -> None:
        """Check that a log to be forgotten no longer exists, or has no more messages to read."""
        for name, log in self._cluster.still_there(begin, forgotten).items() if forgotten else ():
            position = begin.positions[name]
            # A topic that was deleted and created again has lost the messages that the query has not read.
            is_another = option == "forgetTopics" and loss_reason(position, log)
            unread = 0 if is_another else log.count(position)
            if unread:
                topic, nsqd = topic_and_address(name)
                what = f"nsqd {nsqd}" if option == "forgetNsqds" else f"topic {topic!r} of nsqd {nsqd}"
                raise DataLossError(
                    f"option {option} has {what}, which answers, "
                    f"and the query has not read {unread} of its messages"
                )

    # --- where a query begins

    def _start_position(self, name: str, log: FoundLog, wanted: StartingOffsets) -> int:
        """Return where the query begins in one log."""
        topic = topic_of(name)
        starting_ns = self._options.starting_ns(topic)
        if starting_ns is not None:
            return position_at(log.address, self._options.on(topic), log.bounds, starting_ns)
        given = option_position(self._options.starting_positions, *topic_and_address(name))
        if given is not None:
            return min(max(given, log.bounds.first), log.bounds.end)
        return self._position(name, log.bounds, wanted)

    def _position(self, name: str, log: Bounds, wanted: StartingOffsets) -> int:
        if wanted is StartingOffsets.EARLIEST:
            return log.first
        if wanted is StartingOffsets.LATEST:
            return log.end
        position = log.acknowledged.get(self._options.channel)
        if position is None:
            # The channel was created a moment ago.
            raise SourceError(f"channel {self._options.channel!r} was removed from nsqd {nsqd_of(name)}")
        return position

    def _retain(self, begin: Offsets, found: Mapping[str, FoundLog]) -> None:
        """Make all messages pending from where the channel stands: the query will read them.

        A consumer may have finished some messages out of order, and nsqd may have removed those. Messages
        removed before the channel is set are no loss. From then on nsqd removes no message that the query has
        yet to read.
        """
        unread = {
            name: first
            for name, first in begin.items()
            if found[name].bounds.count(first) and not found[name].bounds.is_copy
        }
        self._cluster.set_channel(unread, found)

    def _ahead(self, begin: Offsets, found: Mapping[str, FoundLog]) -> Offsets:
        """Return where an older channel stands, if it has finished messages that the query will read."""
        stands = {name: log.bounds.acknowledged.get(self._options.channel, 0) for name, log in found.items()}
        return {
            name: stands[name]
            for name, log in found.items()
            if log.bounds.count(stands[name]) < log.bounds.count(begin[name])
        }

    def _until_target(self, begin: Offsets, logs: Mapping[str, Bounds]) -> dict[str, Bounds]:
        """Return the logs as they were when the run began, without logs that came later."""
        target = self._target if self._target is not None else {}
        keys = {name: self._key(name, log) for name, log in logs.items()}
        for name, log in logs.items():
            if name in begin:
                # Known from the checkpoint, but not listed when the run began.
                target.setdefault(keys[name], log.readable_end)
        return {name: log.until(target[keys[name]]) for name, log in logs.items() if keys[name] in target}

    def _key(self, name: str, log: Bounds) -> str:
        """Return the identity of a log within a run; at the next lookup another log may have its name."""
        return f"{topic_of(name)}@{log.data_path}" if log.data_path else name


def _data_paths(found: Mapping[str, FoundLog]) -> dict[str, str]:
    return {name: log.bounds.data_path for name, log in found.items() if log.bounds.data_path}
