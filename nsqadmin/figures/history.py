"""The last minutes of what somebody looks at, and the little curve that shows them; PURE."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

_SECOND: Final = 1_000_000_000

SPAN_NS: Final = 300 * _SECOND
# A curve begins as wide as this, so that its first points are not drawn as a cliff.
MIN_SPAN_NS: Final = 60 * _SECOND
SPACING_NS: Final = 1_500_000_000
# Topics and channels somebody looked at lately; the rest is forgotten.
MOST_SUBJECTS: Final = 200

# A topic has the empty channel name.
Subject = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Point:
    at_ns: int
    depth: int
    rate: float | None


@dataclass(frozen=True, slots=True)
class Curve:
    """A line for a box of 100 by 24, and what its ends and height mean."""

    path: str
    area: str
    highest: float
    span_s: int


@dataclass(slots=True)
class HistoryBook:
    """Keeps points of the pages that are open; a page that is opened later starts with an empty curve."""

    _points: OrderedDict[Subject, deque[Point]] = field(default_factory=OrderedDict)

    def add(self, subject: Subject, point: Point) -> Sequence[Point]:
        """Note *point* and return the points of the last minutes."""
        points = self._points.setdefault(subject, deque())
        self._points.move_to_end(subject)
        while len(self._points) > MOST_SUBJECTS:
            self._points.popitem(last=False)
        while points and point.at_ns - points[0].at_ns > SPAN_NS:
            points.popleft()
        if not points or point.at_ns - points[-1].at_ns >= SPACING_NS:
            points.append(point)
        return points


def curve(points: Sequence[Point], values: Sequence[float | None], now_ns: int) -> Curve | None:
    """Draw *values* over the times of *points*; None while there is no line to draw."""
    known = [(point.at_ns, value) for point, value in zip(points, values, strict=True) if value is not None]
    if len(known) < 2:
        return None
    span_ns = max(MIN_SPAN_NS, now_ns - known[0][0])
    highest = max(value for _, value in known)
    scale = 22 / highest if highest > 0 else 0.0
    places = [
        (100 - (now_ns - at_ns) / span_ns * 100, 23 - max(0.0, value) * scale) for at_ns, value in known
    ]
    line = " L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    area = f"M{line} L{places[-1][0]:.1f} 24 L{places[0][0]:.1f} 24 Z"
    return Curve(f"M{line}", area, highest, round(span_ns / _SECOND))
