"""Finds where a query begins or ends in a log: at a time of publishing, or at a given position."""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from nsqclient.wire.node_error import NodeError
from pyspark_nsq.source.bounds import Bounds
from pyspark_nsq.source.cluster import FoundLog
from pyspark_nsq.source.errors import DataLossError, OptionError, SourceError
from pyspark_nsq.source.http import NodeConnection
from pyspark_nsq.source.offsets import name_of, nsqd_of, topic_and_address
from pyspark_nsq.source.options import SourceOptions
from pyspark_nsq.source.planner import loss_reason
from pyspark_nsq.source.reasons import explain

_warnings: Final = logging.getLogger("pyspark_nsq.source")


def check_positions(options: SourceOptions, found: Mapping[str, FoundLog]) -> None:
    """Check that each position in the options is of a log that was *found* and has all that follows it.

    Otherwise that log would be read from another place than chosen, or not at all. Raises SourceError,
    or only warns with ``failOnDataLoss=false``.
    """
    _check_known(options, found)
    for name, log in found.items():
        position = option_position(options.starting_positions, *topic_and_address(name))
        lost = None if position is None else loss_reason(position, log.bounds)
        if not lost:
            continue
        problem = f"option startingOffsets has {position} for nsqd {nsqd_of(name)}, but the log there {lost}"
        if options.fail_on_data_loss:
            raise DataLossError(f"{problem} (failOnDataLoss=false continues with what there is)")
        _warnings.warning("%s", problem)


def _check_known(options: SourceOptions, found: Iterable[str]) -> None:
    """Check that each position in the options belongs to one of the logs that were *found*."""
    logs = sorted(name_of(*topic_and_address(name)) for name in found)
    known = {*logs, *map(nsqd_of, logs), *options.forget_nsqds}
    for option, positions in (
        ("startingOffsets", options.starting_positions),
        ("endingOffsets", options.ending_positions),
    ):
        unknown = sorted(
            name for name in positions.keys() - known if nsqd_of(name) not in options.forget_nsqds
        )
        if not unknown:
            continue
        problem = (
            f"option {option} has a position for {', '.join(unknown)}, which is none of the logs that were "
            f"found: {', '.join(logs) or 'none'}"
        )
        if options.fail_on_data_loss:
            raise OptionError(f"{problem} (failOnDataLoss=false continues without it)")
        _warnings.warning("%s", problem)


def option_position(positions: Mapping[str, int], topic: str, nsqd: str) -> int | None:
    """Return the user's position for one log, given with its topic or without; None if there is none."""
    found = positions.get(f"{topic}@{nsqd}")
    return positions.get(nsqd) if found is None else found


def position_at(address: str, options: SourceOptions, log: Bounds, time_ns: int) -> int:
    """Return the sequence of the first message that was published at *time_ns* or later.

    Messages are in the order of publishing, so bisection finds it; each step reads one message. Raises
    SourceError.
    """
    with NodeConnection(address, options, options.retry_s) as node:
        try:
            low, high = 0, log.count(log.first)
            while low < high:
                middle = (low + high) // 2
                published = _published_ns(node, options.topic, log, log.position_after(log.first, middle))
                if published is None or published >= time_ns:
                    high = middle
                else:
                    low = middle + 1
        except NodeError as error:
            raise SourceError(explain(address, error)) from error
    return log.position_after(log.first, low) if low < log.count(log.first) else log.readable_end


def _published_ns(node: NodeConnection, topic: str, log: Bounds, position: int) -> int | None:
    """Return when the first message at or after *position* was published; None if there is none."""
    while position < log.readable_end:
        found = node.log_range(topic, position, position + 1, log=log.data_path)
        if len(found.messages.timestamps_us):
            return int(found.messages.timestamps_us[0]) * 1000
        position = found.following
    return None
