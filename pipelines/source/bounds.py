"""What one nsqd says about the log of a topic: the answer of its ``/log/bounds``. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Bounds:
    """``first <= sequence < end`` can be asked for; messages are only in *extents*.

    The sequence numbers between extents were never given to a message: after a start nsqd continues at a
    higher number. ``acknowledged`` is the position of each channel.
    """

    first: int
    end: int
    extents: tuple[tuple[int, int], ...]
    acknowledged: Mapping[str, int]

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Bounds":
        """Read the answer; TypeError or KeyError when it is none."""
        first, end = _sequence(record["first"]), _sequence(record["end"])
        extents = tuple((_sequence(start), _sequence(stop)) for start, stop in record["extents"])
        channels = record["channels"]
        if not isinstance(channels, Mapping):
            raise TypeError("channels is not an object")
        acknowledged = {name: _sequence(channel["acknowledged"]) for name, channel in channels.items()}
        return cls(first, end, extents, acknowledged)

    def until(self, end: int) -> "Bounds":
        """The same log as if nothing had been published from *end* on."""
        extents = tuple((start, min(stop, end)) for start, stop in self.extents if start < end)
        return Bounds(self.first, self.end, extents, self.acknowledged)

    @property
    def readable_end(self) -> int:
        """The sequence after the last message there is."""
        return self.extents[-1][1] if self.extents else self.first

    def count(self, start: int) -> int:
        """How many messages there are from *start* on."""
        return sum(stop - max(begin, start) for begin, stop in self.extents if stop > start)

    def advance(self, start: int, messages: int) -> int:
        """The position *messages* further than *start*, or after the last message when there are fewer."""
        position = start
        for begin, stop in self.extents:
            if stop <= position or messages <= 0:
                continue
            position = max(position, begin)
            step = min(messages, stop - position)
            position += step
            messages -= step
        return position


def _sequence(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is not a sequence number")
    return value
