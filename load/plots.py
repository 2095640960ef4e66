"""Line charts as SVG, for the report. Pure."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

Line = Sequence[tuple[float, float]]

WIDTH: Final = 560
HEIGHT: Final = 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 26, 24
_COLOURS: Final = ("#1f6feb", "#d1480f", "#2e8540", "#8250df", "#9a6700", "#0a7d8c", "#b1004f", "#57606a")


def chart(title: str, unit: str, lines: Mapping[str, Line], *, logarithmic: bool = False) -> str:
    """Return one chart of several lines over seconds; lines without points are left out."""
    lines = {name: line for name, line in lines.items() if line}
    if not lines:
        return ""
    last = max(at for line in lines.values() for at, _ in line) or 1.0
    most = max(value for line in lines.values() for _, value in line) or 1.0
    top = _round_up(most)
    height = HEIGHT + 18 * ((len(lines) + 2) // 3)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        f'<text x="{_LEFT}" y="15" class="title">{escape(title)}, {escape(unit)}</text>',
    ]
    floor = min((value for line in lines.values() for _, value in line if value > 0), default=top / 1000)
    for share in (0.0, 0.5, 1.0):
        value = floor * (top / floor) ** share if logarithmic and floor < top else top * share
        y = _y(share)
        parts.append(f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(f'<text x="{_LEFT - 5}" y="{y + 4:.1f}" class="tick end">{_short(value)}</text>')
    for share in (0.0, 0.5, 1.0):
        x = _LEFT + share * (WIDTH - _LEFT - _RIGHT)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 8}" class="tick middle">{last * share:.0f} s</text>')
    for number, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(
            f"{_LEFT + at / last * (WIDTH - _LEFT - _RIGHT):.1f},"
            f"{_y(_share(value, floor, top, logarithmic)):.1f}"
            for at, value in line
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        x, y = _LEFT + number % 3 * 165, HEIGHT + 10 + 18 * (number // 3)
        parts.append(f'<rect x="{x}" y="{y - 8}" width="9" height="9" fill="{colour}"/>')
        parts.append(f'<text x="{x + 13}" y="{y}" class="tick">{escape(name)}</text>')
    return "".join((*parts, "</svg>"))


def _share(value: float, floor: float, top: float, logarithmic: bool) -> float:
    if not logarithmic or floor >= top:
        return value / top
    from math import log

    return max(0.0, log(max(value, floor) / floor) / log(top / floor))


def _y(share: float) -> float:
    return _TOP + (1 - share) * (HEIGHT - _TOP - _BOTTOM)


def _round_up(value: float) -> float:
    scale = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 0.01
    while scale * 10 < value:
        scale *= 10
    return next(step * scale for step in (1, 2, 5, 10) if step * scale >= value)


def _short(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:g}k" if value < 1_000_000 else f"{value / 1e6:g}M"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
