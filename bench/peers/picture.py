"""``python -m bench.peers.picture FILE.json FILE.svg``: draws the rates that ``bench.peers --json`` wrote."""

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.peers.rows import ROWS
from bench.plot import LEFT, TOP, Scale, axis, label, picture

SHOWN: Final = ("many", "batches", "consume", "both")
# By what an answered publish survives, because a stronger promise costs more.
_COLORS: Final = {"power cut": "#2f6fde", "kill -9": "#2e9e6b", "neither": "#9aa5b1"}
_STEP: Final = 17
_HEAD: Final = 26


def draw(found: dict[str, Any]) -> str:
    """Return an SVG of the rates of each broker, row by row, strongest promise first."""
    promises: dict[str, str] = found["survives"]
    rows = [(row, _rates(found["results"][row]["200"], promises)) for row in SHOWN if row in found["results"]]
    rates = [rate for _, bars in rows for _, rate in bars]
    scale = Scale(min(rates), max(rates))
    height = TOP + sum(_HEAD + _STEP * len(bars) for _, bars in rows) + 30
    parts = list(axis(scale, height, "/s"))
    top = float(TOP)
    for row, bars in rows:
        parts.append(f'<text x="10" y="{top + 16:.1f}" font-weight="bold">{ROWS[row].title}</text>')
        top += _HEAD
        for name, rate in bars:
            end = scale.at(rate)
            parts.append(label(top + _STEP / 2, name))
            parts.append(
                f'<rect x="{LEFT}" y="{top + 2:.1f}" width="{end - LEFT:.1f}" height="{_STEP - 4}"'
                f' fill="{_COLORS[promises[name]]}"/>'
            )
            parts.append(f'<text class="small" x="{end + 5:.1f}" y="{top + 12:.1f}">{rate:,.0f}</text>')
            top += _STEP
    legend = [(f"survives {kind}" if kind != "neither" else kind, color) for kind, color in _COLORS.items()]
    return picture("Messages a second, 200 B, two cores (the scale is logarithmic)", legend, height, parts)


def _rates(runs: dict[str, list[dict[str, float]]], promises: dict[str, str]) -> list[tuple[str, float]]:
    order = list(_COLORS)
    rates = [
        (name, median(one["rate"] for one in each))
        for name, each in runs.items()
        if all("rate" in one for one in each)
    ]
    return sorted(rates, key=lambda bar: (order.index(promises[bar[0]]), -bar[1]))


if __name__ == "__main__":
    read, written = map(Path, sys.argv[1:])
    written.write_text(draw(json.loads(read.read_text())))
