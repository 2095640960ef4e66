"""Runs on executors: reads one range of a topic's log as Arrow batches."""

import logging
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from nsqclient.wire.node_error import TOPIC_NOT_FOUND, NodeError
from pyspark_nsq.source.columns import Columns, Origin
from pyspark_nsq.source.errors import DataLossError, SourceError, UnreachableError
from pyspark_nsq.source.http import LOG_NOT_FOUND, NodeConnection
from pyspark_nsq.source.options import SourceOptions
from pyspark_nsq.source.planner import LogRange
from pyspark_nsq.source.range_answer import COMPACTED
from pyspark_nsq.source.reasons import explain_while_read

# The codes of nsqd if a range, or a part of it, no longer exists.
_SEQUENCE_REMOVED: Final = "SEQUENCE_GONE"
_REMOVED: Final = {
    _SEQUENCE_REMOVED: "the first of them were removed there since the batch was planned",
    "INVALID_RANGE": "its log ends before them, so its topic or its data was replaced",
    TOPIC_NOT_FOUND: "it has no such topic now",
}
# Gaps that mean loss: for every reader, and for a query on whose channel the messages should be pending.
LOST: Final = frozenset({"damaged", "removed"})
LOST_TO_A_STREAM: Final = LOST | {COMPACTED}

log: Final = logging.getLogger("pyspark_nsq.source")


def read_range(
    part: LogRange, options: SourceOptions, lost: frozenset[str], columns: Columns
) -> Iterator[pa.RecordBatch]:
    """Read a range; reading it again gives the same messages in the same order.

    A gap with a reason in *lost* ends the query unless data loss is accepted. Raises SourceError.
    """
    options = options.on(part.topic)
    origin = Origin(options.topic, options.channel, part.nsqd)
    with NodeConnection(part.address or part.nsqd, options, options.retry_s) as node:
        position, end = part.start, part.end
        # How many sequence numbers of the range belonged to no message when the range was planned.
        spare = None if part.count is None else end - position - part.count
        _check_same(node, part, options)
        while position < end:
            try:
                answer = node.log_range(
                    options.topic,
                    position,
                    end,
                    channel=options.channel,
                    log=part.data_path,
                    headers=columns.has_headers,
                )
            except NodeError as error:
                if error.code not in _REMOVED:
                    kind = UnreachableError if error.unreachable else SourceError
                    raise kind(explain_while_read(part.nsqd, error)) from error
                if error.code == _SEQUENCE_REMOVED and part.from_log_start:
                    position, _ = _remaining(node, options, part, position, end)
                    continue
                if options.fail_on_data_loss:
                    raise DataLossError(
                        f"nsqd {part.nsqd} does not have the messages {position} to {end} of topic "
                        f"{options.topic!r} any more: {_REMOVED[error.code]} "
                        "(failOnDataLoss=false continues without them)"
                    ) from error
                position, end = _remaining(node, options, part, position, end)
                continue
            missing = answer.missing(lost, part.ahead)
            if spare is not None:
                spare -= answer.unused
                if spare < 0:
                    # A power cut took the messages, and nsqd does not know that they existed.
                    missing.append(f"{-spare} of {position} to {answer.following} (planned, not there)")
                    spare = 0
            if missing:
                _lose(part.nsqd, missing, options)
            if len(answer.messages.sequences):
                yield from columns.batches(answer.messages, origin)
            position = answer.following


def _check_same(node: NodeConnection, part: LogRange, options: SourceOptions) -> None:
    """Check that the nsqd at this address still has the log for which the batch was planned."""
    if not part.data_path:
        return
    try:
        found = node.log_bounds(options.topic, log=part.data_path).data_path
    except NodeError as error:
        if error.code == TOPIC_NOT_FOUND:
            return  # reading will report the missing messages
        found = ""
        if error.code != LOG_NOT_FOUND:
            raise SourceError(explain_while_read(part.nsqd, error)) from error
    if found != part.data_path:
        raise SourceError(
            f"at {node.address} there is another data path than that of nsqd {part.nsqd}, which the "
            "batch was planned with; start the query again, and it is looked for elsewhere"
        )


def _lose(nsqd: str, missing: list[str], options: SourceOptions) -> None:
    """Report missing messages, as an error unless data loss is accepted."""
    sentence = f"nsqd {nsqd} has lost messages of topic {options.topic!r}: sequences {', '.join(missing)}"
    if options.fail_on_data_loss:
        raise DataLossError(f"{sentence} (failOnDataLoss=false continues without them)")
    log.warning("%s; continuing without them", sentence)


def _remaining(
    node: NodeConnection, options: SourceOptions, part: LogRange, start: int, end: int
) -> tuple[int, int]:
    """Return the part of a range that can still be read."""
    try:
        bounds = node.log_bounds(options.topic, options.channel, part.data_path)
    except NodeError as error:
        if error.code == TOPIC_NOT_FOUND:
            return end, end
        raise SourceError(explain_while_read(node.address, error)) from error
    return max(start, bounds.first), min(end, bounds.end)
