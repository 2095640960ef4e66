"""Offsets: how far a query is in each producer's log, as Spark keeps it in its checkpoint. Pure.

    {"nsqd-0.nsqd:4151": 1700000000000123, "nsqd-1.nsqd:4151": 1700000000000456}

The key is an nsqd's ``broadcast_address:http_port``, the value the sequence of the message it reads next.
A query that begins with the earliest message may find a channel that had finished some of them before. Until
it has read so far, its offsets say where that channel stood. Without that, nobody could tell after a restart
whether the channel was emptied meanwhile.

    {"nsqd-0.nsqd:4151": 1700000000000123, "ahead": {"nsqd-0.nsqd:4151": 1700000000000400}}
"""

from collections.abc import Mapping
from typing import Any, Final

from pipelines.source.errors import SourceError

Offsets = dict[str, int]

# A key beside the names of the nsqds, which all end in a port.
_AHEAD: Final = "ahead"


def parse_offsets(value: Any) -> Offsets:
    """Read the positions from a checkpoint; SourceError when it has something else."""
    return _parse(value)[0]


def parse_ahead(value: Any) -> Offsets:
    """Where the channel stood when the query began, for each nsqd where it was ahead of the query."""
    return _parse(value)[1]


def with_ahead(positions: Mapping[str, int], ahead: Mapping[str, int]) -> dict[str, Any]:
    """The offset for the checkpoint."""
    return {**ordered(positions), _AHEAD: ordered(ahead)} if ahead else ordered(positions)


def _parse(value: Any) -> tuple[Offsets, Offsets]:
    if isinstance(value, Mapping):
        ahead = value.get(_AHEAD, {})
        positions = {producer: position for producer, position in value.items() if producer != _AHEAD}
        if _are_positions(positions) and _are_positions(ahead):
            return ordered(positions), ordered(ahead)
    raise SourceError(f"the checkpoint has an offset that is not of the data source nsq: {value!r}")


def _are_positions(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(producer, str) and type(position) is int and position >= 0
        for producer, position in value.items()
    )


def ordered(positions: Mapping[str, int]) -> Offsets:
    """The same positions in one order: Spark compares offsets by their text."""
    return dict(sorted(positions.items()))


def moved(before: Mapping[str, int], after: Mapping[str, int]) -> Offsets:
    """The positions of *after* that are not the same in *before*."""
    return {producer: position for producer, position in after.items() if before.get(producer) != position}
