"""``python -m bench.plot FILE FOLDER``: draws what ``python -m bench --json FILE`` measured, as two pictures.

``throughput.svg`` has the rates as ratios to the peer, ``latency.svg`` the percentiles of both servers. The
SVG is written as text, so that no library is needed for two pictures.
"""

import argparse
import math
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from bench import kept
from bench.report import Line, Results, lines
from bench.rows import GROUPS

WIDTH: Final = 860
LEFT: Final = 360
RIGHT: Final = 70
STEP: Final = 24
TOP: Final = 60
OURS, PEER, GOAL, INK = "#2f6fde", "#d9822b", "#c23030", "#5c7080"
STYLE: Final = f"""<style>
text {{ font: 13px sans-serif; fill: {INK}; }}
.title {{ font-size: 16px; font-weight: bold; }}
.small {{ font-size: 11px; }}
line {{ stroke: {INK}; stroke-opacity: 0.25; }}
</style>"""


class Scale:
    """A logarithmic scale between two pixels; values outside it are drawn at the edge."""

    def __init__(self, least: float, most: float) -> None:
        self._low = math.floor(math.log10(least))
        self._high = max(self._low + 1, math.ceil(math.log10(most)))

    def at(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    def decades(self) -> list[float]:
        return [10.0**power for power in range(self._low, self._high + 1)]


def picture(title: str, legend: list[tuple[str, str]], height: int, parts: list[str]) -> str:
    marks = [
        f'<rect x="{LEFT + 130 * n}" y="32" width="10" height="10" fill="{color}"/>'
        f'<text class="small" x="{LEFT + 130 * n + 15}" y="41">{escape(name)}</text>'
        for n, (name, color) in enumerate(legend)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" role="img">',
            f"<title>{escape(title)}</title>",
            STYLE,
            f'<text class="title" x="10" y="22">{escape(title)}</text>',
            *marks,
            *parts,
            "</svg>\n",
        ]
    )


def axis(scale: Scale, height: int, unit: str) -> Iterator[str]:
    for value in scale.decades():
        x = scale.at(value)
        yield f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 22}"/>'
        yield f'<text class="small" x="{x:.1f}" y="{height - 8}" text-anchor="middle">{value:g}{unit}</text>'


def label(y: float, text: str) -> str:
    return f'<text x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'


def throughput(found: list[Line], ours: str, peer: str) -> str:
    """Return an SVG with a bar for each rate, as a multiple of the peer's, with a mark at the goal."""
    shown = [(line, line.ratio) for line in found if line.figure.name == "rate" and line.ratio]
    height = TOP + STEP * len(shown) + 30
    ratios = [ratio for _, ratio in shown if ratio]
    scale = Scale(min([*ratios, 0.5]), max([*ratios, 2.0]))
    parts = list(axis(scale, height, "x"))
    one = scale.at(1.0)
    parts.append(
        f'<line x1="{one:.1f}" y1="{TOP - 8}" x2="{one:.1f}" y2="{height - 22}" style="stroke-opacity: 1"/>'
    )
    for number, (line, ratio) in enumerate(shown):
        y = TOP + STEP * number + STEP / 2
        end = scale.at(ratio or 1.0)
        parts.append(label(y, line.title))
        parts.append(
            f'<rect x="{min(one, end):.1f}" y="{y - 7:.1f}" width="{abs(end - one):.1f}" height="14"'
            f' fill="{OURS if (ratio or 0) >= 1 else PEER}"/>'
        )
        parts.append(f'<text class="small" x="{max(one, end) + 6:.1f}" y="{y + 4:.1f}">{ratio:.2f}</text>')
        if line.figure.goal:
            x = scale.at(line.figure.goal)
            parts.append(f'<rect x="{x - 1:.1f}" y="{y - 10:.1f}" width="2" height="20" fill="{GOAL}"/>')
    legend = [(f"{ours} is ahead", OURS), (f"{peer} is ahead", PEER), ("asked for", GOAL)]
    return picture(f"Rate of {ours}, in multiples of {peer}", legend, height, parts)


def latency(found: list[Line], ours: str, peer: str) -> str:
    """Return an SVG of each percentile of both servers, in milliseconds."""
    shown = [line for line in found if all(line.values) and len(line.values) == 2]
    height = TOP + STEP * len(shown) + 30
    values = [value for line in shown for value in line.values if value]
    scale = Scale(min([*values, 0.1]), max([*values, 1.0]))
    parts = list(axis(scale, height, " ms"))
    for number, line in enumerate(shown):
        y = TOP + STEP * number + STEP / 2
        places = [scale.at(value or 1.0) for value in line.values]
        parts.append(
            label(y, f"{line.title.removeprefix('latency ')}: {line.figure.unit.removeprefix('ms, ')}")
        )
        parts.append(f'<line x1="{places[0]:.1f}" y1="{y:.1f}" x2="{places[1]:.1f}" y2="{y:.1f}"/>')
        parts += [
            f'<circle cx="{place:.1f}" cy="{y:.1f}" r="5" fill="{color}"/>'
            for place, color in reversed(list(zip(places, (OURS, PEER), strict=True)))
        ]
    return picture("Latency at a fixed rate", [(ours, OURS), (peer, PEER)], height, parts)


def draw(results: Results, ours: str, peer: str, folder: Path) -> list[Path]:
    """Write the pictures for which *results* has figures, and return their paths."""
    of_latency = {row.name for row in GROUPS["latency"]}
    pictures = {
        "throughput.svg": throughput(lines(_only(results, of_latency, False), [ours, peer]), ours, peer),
        "latency.svg": latency(lines(_only(results, of_latency, True), [ours, peer]), ours, peer),
    }
    for name, text in pictures.items():
        (folder / name).write_text(text)
    return [folder / name for name in pictures]


def _only(results: Results, names: set[str], inside: bool) -> Results:
    return {row: runs for row, runs in results.items() if (row in names) is inside}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.plot", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="what python -m bench --json wrote")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("--name", default="ours", help="the first server's name in the file")
    parser.add_argument("--peer-name", default="peer", help="the second one's")
    args = parser.parse_args(arguments)
    for path in draw(kept.load(args.file), args.name, args.peer_name, args.folder):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
