"""Offsets: how far a query is in each log, as Spark keeps it in its checkpoint. Pure.

    {"nsqd-0.nsqd:4151": 1700000000000123, "nsqd-1.nsqd:4151": 1700000000000456,
     "data_paths": {"nsqd-0.nsqd:4151": "5d41...", "nsqd-1.nsqd:4151": "9f3c..."},
     "cuts": {"nsqd-0.nsqd:4151": [1700000000000003, 1700000000000063]},
     "counts": {"nsqd-0.nsqd:4151": [60, 60]}}

The key is the name of a log: the address at which the query first saw it, with ``topic@`` before it if the
query reads several topics. The value is the sequence of the message that the query reads next. A log is
identified by its data path, so an nsqd may come back at another address; ``addresses`` has the present
address if it is not in the name. ``cuts`` are the positions where the partitions begin of the batch that ends
at this offset, and ``counts`` the number of messages that each of them had when the batch was planned.

A query that begins with the earliest message may find a channel that has finished some messages already.
Until the query has read that far, ``ahead`` has the position where that channel stood. Without ``ahead``, a
restarted query could not tell whether the channel was emptied meanwhile.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark_nsq.source.errors import SourceError

Offsets = dict[str, int]

# Keys beside the names of the logs; these names all end in a port.
_AHEAD: Final = "ahead"
_DATA_PATHS: Final = "data_paths"
_ADDRESSES: Final = "addresses"
_CUTS: Final = "cuts"
_COUNTS: Final = "counts"
_OTHERS: Final = (_AHEAD, _DATA_PATHS, _ADDRESSES, _CUTS, _COUNTS)


@dataclass(frozen=True, slots=True)
class Offset:
    """One offset of the checkpoint."""

    positions: Offsets
    ahead: Offsets = field(default_factory=dict)
    """Where the channel stood when the query began, for each log where it was ahead of the query."""
    data_paths: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Where a log is found that is no longer at the address of its name."""
    cuts: Mapping[str, list[int]] = field(default_factory=dict)
    counts: Mapping[str, list[int]] = field(default_factory=dict)

    @classmethod
    def parse(cls, value: Any) -> "Offset":
        """Read an offset from a checkpoint. Raises SourceError if it is none of ours."""
        if isinstance(value, Mapping):
            positions = {name: position for name, position in value.items() if name not in _OTHERS}
            ahead, cuts, counts = (value.get(key, {}) for key in (_AHEAD, _CUTS, _COUNTS))
            data_paths, addresses = value.get(_DATA_PATHS, {}), value.get(_ADDRESSES, {})
            if (
                _are_positions(positions)
                and _are_positions(ahead)
                and _are_texts(data_paths)
                and _are_texts(addresses)
                and _are_lists(cuts)
                and _are_lists(counts)
            ):
                return cls(positions, dict(ahead), data_paths, addresses, cuts, counts)
        raise SourceError(f"the checkpoint has an offset that is not of the data source nsq: {value!r}")

    def json(self) -> dict[str, Any]:
        """Return the offset for Spark; equal offsets have equal text, because Spark compares texts."""
        others: dict[str, Mapping[str, Any]] = {
            _AHEAD: self.ahead,
            _DATA_PATHS: self.data_paths,
            _ADDRESSES: self.addresses,
            _CUTS: self.cuts,
            _COUNTS: self.counts,
        }
        kept = {key: dict(sorted(value.items())) for key, value in others.items() if value}
        return {**dict(sorted(self.positions.items())), **kept}

    def address(self, name: str) -> str:
        """Return where the log was found when the offset was made."""
        return self.addresses.get(name) or place_of(name)[1]


def name_of(topic: str, address: str) -> str:
    """Return the name of a log when the query has several topics."""
    return f"{topic}@{address}"


def place_of(name: str) -> tuple[str, str]:
    """Return topic and address from the name of a log; the topic is empty if the query has only one."""
    topic, _, address = name.rpartition("@")
    # If the name was taken, a part of the data path's identity was appended.
    return topic, address.partition("#")[0]


def moved(before: Mapping[str, int], after: Mapping[str, int]) -> Offsets:
    """Return the positions of *after* that differ from *before*."""
    return {name: position for name, position in after.items() if before.get(name) != position}


def _is_position(value: Any) -> bool:
    return type(value) is int and value >= 0


def _are_positions(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and _is_position(position) for name, position in value.items()
    )


def _are_lists(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(found, list) and all(map(_is_position, found)) for found in value.values()
    )


def _are_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(text, str) for name, text in value.items()
    )
