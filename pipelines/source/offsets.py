"""Offsets: how far a query is in each producer's log, as Spark keeps it in its checkpoint. Pure.

    {"nsqd-0.nsqd:4151": 1700000000000123, "nsqd-1.nsqd:4151": 1700000000000456}

The key is a nsqd's ``broadcast_address:http_port``, the value the sequence of the message it reads next.
"""

from collections.abc import Mapping
from typing import Any

from pipelines.source.errors import SourceError

Offsets = dict[str, int]


def parse_offsets(value: Any) -> Offsets:
    """Read an offset from a checkpoint; SourceError when it is none of ours."""
    if not isinstance(value, Mapping) or not all(
        isinstance(producer, str) and type(position) is int and position >= 0
        for producer, position in value.items()
    ):
        raise SourceError(f"the checkpoint has an offset that is not of the data source nsq: {value!r}")
    return ordered(value)


def ordered(positions: Mapping[str, int]) -> Offsets:
    """The same positions in one order: Spark compares offsets by their text."""
    return dict(sorted(positions.items()))


def moved(before: Mapping[str, int], after: Mapping[str, int]) -> Offsets:
    """The positions of *after* that are not the same in *before*."""
    return {producer: position for producer, position in after.items() if before.get(producer) != position}
