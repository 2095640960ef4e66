"""Offsets: how far a query is in each log, as Spark keeps it in its checkpoint. Pure.

    {"orders@nsqd-0.nsqd:4151": 1700000000000123, "orders@nsqd-1.nsqd:4151": 1700000000000456,
     "channel": "archive",
     "data_paths": {"orders@nsqd-0.nsqd:4151": "5d41...", "orders@nsqd-1.nsqd:4151": "9f3c..."},
     "cuts": {"orders@nsqd-0.nsqd:4151": [1700000000000003, 1700000000000063]},
     "counts": {"orders@nsqd-0.nsqd:4151": [60, 60]}}

The key is the name of a log: its topic, and the address at which the query first saw it. The value is the
sequence of the message that the query reads next. A log is identified by its data path, so an nsqd may come
back at another address; ``addresses`` has the present address if it is not in the name. ``cuts`` are the
positions where the partitions begin of the batch that ends at this offset, and ``counts`` the number of
messages that each of them had when the batch was planned.

A query that begins with the earliest message may find a channel that has finished some messages already.
Until the query has read that far, ``ahead`` has the position of that channel. Without ``ahead``, a
restarted query could not know whether the channel was emptied since.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pyspark_nsq.source.errors import CheckpointError

Offsets = dict[str, int]
T = TypeVar("T")

# Keys other than the names of logs; these names all end in a port.
_AHEAD: Final = "ahead"
_DATA_PATHS: Final = "data_paths"
_ADDRESSES: Final = "addresses"
_CUTS: Final = "cuts"
_COUNTS: Final = "counts"
_CHANNEL: Final = "channel"
_OTHERS: Final = (_AHEAD, _DATA_PATHS, _ADDRESSES, _CUTS, _COUNTS, _CHANNEL)


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
    channel: str = ""
    """Empty in an offset of a version that did not note it."""

    @classmethod
    def parse(cls, value: Any, topic: str = "") -> "Offset":
        """Read an offset from a checkpoint; *topic* is the query's, if it has only one.

        Raises CheckpointError if it is no offset of this source, or if it is of a version that did not note
        the topic and the query has several.
        """
        if isinstance(value, Mapping):
            value = _with_topic(value, topic)
            positions = {name: position for name, position in value.items() if name not in _OTHERS}
            ahead, cuts, counts = (value.get(key, {}) for key in (_AHEAD, _CUTS, _COUNTS))
            data_paths, addresses = value.get(_DATA_PATHS, {}), value.get(_ADDRESSES, {})
            channel = value.get(_CHANNEL, "")
            if (
                _are_positions(positions)
                and _are_positions(ahead)
                and _are_texts(data_paths)
                and _are_texts(addresses)
                and _are_lists(cuts)
                and _are_lists(counts)
                and isinstance(channel, str)
            ):
                return cls(positions, dict(ahead), data_paths, addresses, cuts, counts, channel)
        raise CheckpointError(f"the checkpoint has an offset that is not of the data source nsq: {value!r}")

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
        channel = {_CHANNEL: self.channel} if self.channel else {}
        return {**dict(sorted(self.positions.items())), **channel, **kept}

    @property
    def topics(self) -> set[str]:
        return {topic_of(name) for name in self.positions}

    def select(self, names: Container[str]) -> "Offset":
        """Return the positions of these logs alone, without the cuts of a batch."""

        def of(found: Mapping[str, T]) -> dict[str, T]:
            return {name: value for name, value in found.items() if name in names}

        return Offset(
            of(self.positions),
            of(self.ahead),
            of(self.data_paths),
            of(self.addresses),
            channel=self.channel,
        )

    def address(self, name: str) -> str:
        """Return where the log was found when the offset was made."""
        return self.addresses.get(name) or nsqd_of(name)


def name_of(topic: str, address: str) -> str:
    """Return the name of a log."""
    return f"{topic}@{address}"


def topic_and_address(name: str) -> tuple[str, str]:
    """Return topic and address from the name of a log."""
    topic, _, address = name.rpartition("@")
    # If the name was taken, a part of the data path's identity was appended.
    return topic, address.partition("#")[0]


def topic_of(name: str) -> str:
    """Return the topic in the name of a log."""
    return topic_and_address(name)[0]


def nsqd_of(name: str) -> str:
    """Return the address in the name of a log, as sentences name its nsqd."""
    return topic_and_address(name)[1]


def _with_topic(value: Mapping[str, Any], topic: str) -> dict[str, Any]:
    """Return the offset with the topic in the names of logs, which earlier versions left out."""

    def named(key: str) -> str:
        if "@" in key:
            return key
        if not topic:
            raise CheckpointError(
                "the checkpoint is of an earlier version and does not name its topic: run the query once "
                "with that topic alone, then add others"
            )
        return name_of(topic, key)

    return {
        (key if key in _OTHERS else named(key)): (
            {named(name): one for name, one in found.items()}
            if key in _OTHERS and isinstance(found, Mapping)
            else found
        )
        for key, found in value.items()
    }


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
