"""Executor side: the messages of one range of a topic's log, as Arrow batches."""

import logging
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from nsqcore.cluster.errors import TOPIC_NOT_FOUND, NodeError
from pipelines.source.bounds import Bounds
from pipelines.source.errors import DataLossError, SourceError
from pipelines.source.http import Node, open_node
from pipelines.source.options import SourceOptions
from pipelines.source.planner import LogRange
from pipelines.source.range_answer import COMPACTED, RangeAnswer
from pipelines.source.reasons import explain_while_read
from pipelines.source.schema import to_batch

# What nsqd says when a range is not, or not wholly, there any more.
_GONE: Final = {
    "SEQUENCE_GONE": "the first of them were removed there since the batch was planned",
    "INVALID_RANGE": "its log ends before them, so its topic or its data was replaced",
    TOPIC_NOT_FOUND: "it has no such topic now",
}
# Gaps that mean loss: to every reader, and to a query whose channel should still be owed the messages.
LOST: Final = frozenset({"damaged", "removed"})
LOST_TO_A_STREAM: Final = LOST | {COMPACTED}

log: Final = logging.getLogger("pipelines.source")


def read_range(part: LogRange, options: SourceOptions, lost: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """Read a range; doing it again gives the same messages in the same order.

    A gap with a reason in *lost* ends the query, unless data loss is accepted.
    """
    with open_node(part.producer, options, options.retry_s) as node:
        position, end = part.start, part.end
        while position < end:
            try:
                answer = _fetch(node, options, position, end)
            except NodeError as error:
                if error.code not in _GONE:
                    raise SourceError(explain_while_read(part.producer, error)) from error
                if options.fail_on_data_loss:
                    raise DataLossError(
                        f"nsqd {part.producer} does not have the messages {position} to {end} of topic "
                        f"{options.topic!r} any more: {_GONE[error.code]} "
                        "(failOnDataLoss=false goes on without them)"
                    ) from error
                position, end = _remaining(node, options.topic, position, end)
                continue
            except ValueError as error:
                raise SourceError(f"nsqd {part.producer} sent what is no message log: {error}") from error
            missing = answer.missing(lost, part.ahead)
            if missing:
                _lose(part.producer, missing, options)
            if len(answer.messages.sequences):
                yield to_batch(answer.messages, options.topic, options.channel, part.producer)
            position = answer.following


def _lose(producer: str, missing: list[str], options: SourceOptions) -> None:
    """Say what is missing, as an error if that is not accepted."""
    sentence = f"nsqd {producer} has lost messages of topic {options.topic!r}: sequences {', '.join(missing)}"
    if options.fail_on_data_loss:
        raise DataLossError(f"{sentence} (failOnDataLoss=false goes on without them)")
    log.warning("%s; going on without them", sentence)


def _fetch(node: Node, options: SourceOptions, start: int, end: int) -> RangeAnswer:
    """As much of the range as fits into one answer."""
    query = [("topic", options.topic), ("start", str(start)), ("end", str(end))]
    if options.channel:
        query.append(("channel", options.channel))
    answer = node.get("/log/range", query)
    return RangeAnswer.parse(start, end, answer.headers, answer.body)


def _remaining(node: Node, topic: str, start: int, end: int) -> tuple[int, int]:
    """The part of a range that can still be read."""
    try:
        bounds = node.get_json("/log/bounds", [("topic", topic)], Bounds.from_json)
    except NodeError as error:
        if error.code == TOPIC_NOT_FOUND:
            return end, end
        raise SourceError(explain_while_read(node.address, error)) from error
    return max(start, bounds.first), min(end, bounds.end)
