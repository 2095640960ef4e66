"""How a moment of a topic, channel or node is stored in twelve bytes; PURE.

Depth is exact. Rates, ages and messages in flight are stored on a logarithmic scale, exact to a third of a
thousandth, which is finer than a chart shows.
"""

import struct
from dataclasses import dataclass
from math import expm1, log1p
from typing import Final

_RECORD: Final = struct.Struct("<IHHHH")
SIZE: Final = _RECORD.size
# The largest number of each field stands for "not known". The highest bit of a depth marks a partial point.
_NO_DEPTH: Final = 0xFFFF_FFFF
_PARTIAL: Final = 0x8000_0000
_MAX_DEPTH: Final = _PARTIAL - 1
_NOTHING: Final = 0xFFFF
# Steps of the scale for each factor of e; the last step is four thousand million.
_STEPS: Final = 2960.0


@dataclass(frozen=True, slots=True)
class Point:
    """A moment: messages waiting, arrived and finished per second, and the oldest message's age in seconds.

    ``more`` is messages in flight, or for the whole cluster how many nodes answered. None means not known.
    The depth of a partial point includes the last known depth of nodes that did not answer.
    """

    depth: int | None = None
    published: float | None = None
    finished: float | None = None
    age_s: float | None = None
    more: float | None = None
    is_partial: bool = False

    def pack(self) -> bytes:
        depth = _NO_DEPTH
        if self.depth is not None:
            depth = min(max(self.depth, 0), _MAX_DEPTH - self.is_partial) | _PARTIAL * self.is_partial
        return _RECORD.pack(
            depth, _step(self.published), _step(self.finished), _step(self.age_s), _step(self.more)
        )

    @classmethod
    def unpack(cls, body: bytes) -> "Point":
        depth, came, went, age, more = _RECORD.unpack(body)
        return cls(
            None if depth == _NO_DEPTH else depth & _MAX_DEPTH,
            _value(came),
            _value(went),
            _value(age),
            _value(more),
            depth != _NO_DEPTH and bool(depth & _PARTIAL),
        )


UNKNOWN: Final = Point()


def _step(value: float | None) -> int:
    if value is None:
        return _NOTHING
    return min(round(log1p(max(0.0, value)) * _STEPS), _NOTHING - 1)


def _value(step: int) -> float | None:
    return None if step == _NOTHING else expm1(step / _STEPS)


def average(points: list[Point]) -> Point:
    """Return one point for all *points*: mean rates, the largest depth, the oldest age."""
    if not points:
        return UNKNOWN
    depths = [point.depth for point in points if point.depth is not None]
    return Point(
        max(depths) if depths else None,
        _mean([point.published for point in points]),
        _mean([point.finished for point in points]),
        max((point.age_s for point in points if point.age_s is not None), default=None),
        _mean([point.more for point in points]),
        any(point.is_partial for point in points),
    )


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
