"""The bounds of a topic's log on one nsqd: the answer of ``/log/bounds``. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Bounds:
    """``first <= sequence < end`` can be requested; messages are only in *extents*.

    The sequence numbers between extents were never given to a message: after a start nsqd continues at a
    higher number. A message that was stored and is missing counts as if it existed, so that a query notices
    it. ``acknowledged`` has the position of each channel. ``data_path`` is the identity of the log: of the
    data path of the nsqd that accepted its messages. ``promoted`` has the identities of promoted copies of
    other logs on the same nsqd; *is_copy* says that this is one of them.
    """

    first: int
    end: int
    extents: tuple[tuple[int, int], ...]
    acknowledged: Mapping[str, int]
    data_path: str = ""
    promoted: tuple[str, ...] = ()
    is_copy: bool = False

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Bounds":
        """Read the answer. Raises TypeError or KeyError if it is invalid."""
        promoted = record.get("promoted", [])
        if not isinstance(promoted, list) or not all(isinstance(one, str) for one in promoted):
            raise TypeError("promoted is no list of texts")
        first, end = _sequence(record["first"]), _sequence(record["end"])
        spans = [(_sequence(start), _sequence(stop)) for start, stop in record["extents"]]
        spans += [(_sequence(gap["start"]), _sequence(gap["end"])) for gap in record.get("gaps", ())]
        channels, data_path = record["channels"], record.get("data_path", "")
        if not isinstance(channels, Mapping) or not isinstance(data_path, str):
            raise TypeError("channels is not an object, or data_path no text")
        acknowledged = {name: _sequence(channel["acknowledged"]) for name, channel in channels.items()}
        return cls(first, end, _joined(spans), acknowledged, data_path, tuple(promoted))

    def until(self, end: int) -> "Bounds":
        """Return the same log without the messages from *end* on."""
        extents = tuple((start, min(stop, end)) for start, stop in self.extents if start < end)
        return replace(self, extents=extents)

    @property
    def readable_end(self) -> int:
        """The sequence after the last message."""
        return self.extents[-1][1] if self.extents else self.first

    def count(self, start: int, end: int | None = None) -> int:
        """Return the number of messages from *start* on, below *end* if given."""
        stops = ((begin, stop if end is None else min(stop, end)) for begin, stop in self.extents)
        return sum(max(0, stop - max(begin, start)) for begin, stop in stops)

    def position_after(self, start: int, messages: int) -> int:
        """Return the position of the message that has *messages* others before it, counted from *start*."""
        position = self.advance(start, messages)
        return next((max(begin, position) for begin, stop in self.extents if stop > position), position)

    def advance(self, start: int, messages: int) -> int:
        """Return the position *messages* after *start*, or after the last message if there are fewer."""
        position = start
        for begin, stop in self.extents:
            if stop <= position or messages <= 0:
                continue
            position = max(position, begin)
            step = min(messages, stop - position)
            position += step
            messages -= step
        return position


def _joined(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the spans in order, with adjoining ones merged."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], stop))
        elif start < stop:
            joined.append((start, stop))
    return tuple(joined)


def _sequence(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is not a sequence number")
    return value
