"""Stores readings in a file, so that a table can be measured in several parts and drawn later."""

import json
from pathlib import Path
from typing import Any

from bench.metrics import Reading, Readings, Row

Results = dict[str, dict[str, list[Readings]]]


def save(path: Path, results: Results, about: dict[str, Any]) -> None:
    path.write_text(json.dumps({"about": about, "rows": encode(results)}, indent=1))


def load(path: Path) -> Results:
    """Return the rows of the file, or no rows if the file does not exist."""
    if not path.exists():
        return {}
    return decode(json.loads(path.read_text())["rows"])


def encode(results: Results) -> dict[str, Any]:
    """Return JSON; a reading is a list: the value, and the cost per message of server and load, or null."""
    return {
        row: {
            name: [
                {
                    figure: [_rounded(reading.value), _rounded(reading.server_us), _rounded(reading.load_us)]
                    for figure, reading in run.items()
                }
                for run in runs
            ]
            for name, runs in by_server.items()
        }
        for row, by_server in results.items()
    }


def decode(rows: dict[str, Any]) -> Results:
    return {
        row: {
            name: [{figure: Reading(*three) for figure, three in run.items()} for run in runs]
            for name, runs in by_server.items()
        }
        for row, by_server in rows.items()
    }


def short(row: Row, server: str, turn: int, readings: Readings) -> str:
    """Return one run as a line, which is printed before the next run."""
    units = {figure.name: figure.unit for figure in row.metrics}
    figures = ", ".join(
        f"{name} {reading.value:,.5g} {units[name]}"
        + (f" ({reading.server_us:.2f} us, load {reading.load_us:.2f})" if reading.server_us else "")
        for name, reading in readings.items()
    )
    return f"{row.name:12} {turn + 1} {server:11} {figures}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
