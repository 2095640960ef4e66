"""Charts and sparklines that the server draws in plain SVG; PURE, time arrives as ``now_s``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from nsqadmin.stats.points import Point
from nsqadmin.stats.present import per_second

Series = Sequence[tuple[float, Point]]

WIDTH: Final = 600
HEIGHT: Final = 120
# A line is interrupted where so many steps are missing, so that it shows only known values.
_GAP_STEPS: Final = 3
# A chart shows at least this span, even if the history is shorter.
_SHORTEST_S: Final = 300.0
# A line has at most so many corners; more would be finer than a pixel.
_MAX_CORNERS: Final = 300


@dataclass(frozen=True, slots=True)
class Line:
    """``partial`` is the path where a node did not answer, with its last known value."""

    name: str
    path: str
    partial: str
    last: float | None


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines for a box of ``WIDTH`` by ``HEIGHT``, and the values at its edges."""

    key: str
    title: str
    lines: tuple[Line, ...]
    highest: float
    start: str
    ends: str

    @property
    def summary(self) -> str:
        """Describe the chart in words, for readers who cannot see it."""
        now = ", ".join(
            f"{line.name} {per_second(line.last)}" for line in self.lines if line.last is not None
        )
        span = f"from {self.start} to {self.ends} UTC"
        return f"{self.title} {span}, at most {per_second(self.highest)}; now {now}"


def chart(
    key: str,
    title: str,
    points: Series,
    values: Sequence[tuple[str, Callable[[Point], float | None]]],
    now_s: float,
    span_s: float,
    step_s: float,
) -> Chart | None:
    """Draw *values* of *points* over the last *span_s*; return None if there is no line to draw."""
    if len(points) < 2:
        return None
    # A short history is drawn over the whole width, not squeezed into the last pixels.
    span_s = min(span_s, max(_SHORTEST_S, now_s - points[0][0]))
    begins = now_s - span_s
    points = [one for one in points if one[0] >= begins]
    series = [
        (name, [(at_s, value(point), point.is_partial) for at_s, point in points]) for name, value in values
    ]
    highest = max((value for _, found in series for _, value, _ in found if value is not None), default=0.0)
    lines = tuple(
        Line(
            name,
            *_paths(found, begins, span_s, highest, step_s, WIDTH, HEIGHT),
            next((value for _, value, _ in reversed(found) if value is not None), None),
        )
        for name, found in series
    )
    if not any(line.path or line.partial for line in lines):
        return None
    return Chart(key, title, lines, highest, _clock(begins), _clock(now_s))


def spark(points: Series, value: Callable[[Point], float | None], now_s: float, span_s: float) -> str:
    """Draw a line for a box of 100 by 20; return an empty string if there is none to draw."""
    if not points:
        return ""
    span_s = min(span_s, max(_SHORTEST_S, now_s - points[0][0]))
    begins = now_s - span_s
    found = [(at_s, value(point), False) for at_s, point in points if at_s >= begins]
    highest = max((one for _, one, _ in found if one is not None), default=0.0)
    return _paths(found, begins, span_s, highest, 60.0, 100, 20, corners=60)[0]


def _paths(
    found: Sequence[tuple[float, float | None, bool]],
    begins: float,
    span_s: float,
    highest: float,
    step_s: float,
    width: int,
    height: int,
    corners: int = _MAX_CORNERS,
) -> tuple[str, str]:
    """Return the path of a line, and that of its partial points; between two corners it shows the highest."""
    scale = (height - 2) / highest if highest > 0 else 0.0
    bins: dict[int, tuple[float, float, bool]] = {}
    for at_s, value, is_partial in found:
        if value is None:
            continue
        number = int((at_s - begins) / span_s * corners)
        if number not in bins or value > bins[number][1]:
            bins[number] = at_s, value, is_partial
    parts: tuple[list[str], list[str]] = [], []
    last: tuple[float, bool, str] | None = None
    widest_s = max(_GAP_STEPS * step_s, 2 * span_s / corners)
    for number in sorted(bins):
        at_s, value, is_partial = bins[number]
        place = f"{(at_s - begins) / span_s * width:.1f} {height - 1 - value * scale:.1f}"
        is_apart = last is None or at_s - last[0] > widest_s
        if last is not None and not is_apart and last[1] != is_partial:
            # The other path begins where this one ends.
            parts[is_partial].append(f"M{last[2]}")
        parts[is_partial].append(f"{'M' if is_apart else 'L'}{place}")
        last = at_s, is_partial, place
    whole, partial = (" ".join(part) if len(part) > 1 else "" for part in parts)
    return whole, partial


def _clock(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M")
