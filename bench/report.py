"""Turns readings into a table: medians of the runs, the ratio of the two servers, and the goals."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.metrics import Metric, Readings, Row
from bench.rows import ROWS

# row -> name of the server -> one set of readings for each run
Results = Mapping[str, Mapping[str, list[Readings]]]


def save(path: Path, results: Results, about: dict[str, Any]) -> None:
    """Write JSON; a reading is a list: the value, and the cost per message of server and load, or null."""
    rows = {
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
    path.write_text(json.dumps({"about": about, "rows": rows}, indent=1))


def short(row: Row, server: str, turn: int, readings: Readings) -> str:
    """Return one run as a line, which is printed before the next run."""
    units = {figure.name: figure.unit for figure in row.metrics}
    metrics = ", ".join(
        f"{name} {reading.value:,.5g} {units[name]}"
        + (f" ({reading.server_us:.2f} us, load {reading.load_us:.2f})" if reading.server_us else "")
        for name, reading in readings.items()
    )
    return f"{row.name:12} {turn + 1} {server:11} {metrics}"


@dataclass(frozen=True)
class Line:
    """One metric of one row, as measured on the first server, the second server and the null server."""

    title: str
    metric: Metric
    values: list[float | None]
    costs: list[float | None]
    load_us: float | None
    null: float | None

    @property
    def ratio(self) -> float | None:
        return _ratio(self.values)

    @property
    def reached(self) -> bool | None:
        """Return whether the goal was reached; None if there is no goal, or nothing to compare with."""
        figure, ours = self.metric, self.values[0]
        if ours is None or (figure.goal is None and figure.limit is None):
            return None
        if figure.goal is not None and self.ratio is None:
            return None
        return figure.value_reached(ours) and (self.ratio is None or figure.ratio_reached(self.ratio))


def lines(results: Results, names: list[str], null: str | None = None) -> list[Line]:
    """Return a line for each metric of each measured row."""
    found = []
    for row, runs in results.items():
        for figure in ROWS[row].metrics:
            readings = {
                name: [one[figure.name] for one in runs.get(name, ()) if figure.name in one]
                for name in [*names, *([null] if null else [])]
            }
            values = [_middle([reading.value for reading in readings[name]]) for name in names]
            costs = [_middle([reading.server_us for reading in readings[name]]) for name in names]
            loads = [_middle([reading.load_us for reading in readings[name]]) for name in names]
            found.append(
                Line(
                    ROWS[row].title,
                    figure,
                    values,
                    costs,
                    max((load for load in loads if load is not None), default=None),
                    _middle([reading.value for reading in readings[null]]) if null else None,
                )
            )
    return found


def table(found: list[Line], names: list[str], null: str | None = None) -> str:
    """Return a Markdown table; with two servers it has the ratio of the first to the second, and the goal."""
    two = len(names) == 2
    head = ["row", "unit", *names]
    if two:
        head += ["ratio", "goal"]
    head += ["reached", *(f"{name} us/msg" for name in names)]
    if two:
        head.append("CPU ratio")
    head.append("load us/msg")
    if null:
        head.append(null)
    rows = [_line(head), _line(["---", "---"] + ["--:"] * (len(head) - 2))]
    for line in found:
        cells = [line.title, line.metric.unit, *(_number(value) for value in line.values)]
        if two:
            cells += [_two_places(line.ratio), _goal(line.metric)]
        cells += [{None: "", True: "yes", False: "no"}[line.reached], *map(_two_places, line.costs)]
        if two:
            cells.append(_two_places(_ratio(line.costs)))
        cells.append(_two_places(line.load_us))
        if null:
            cells.append(_number(line.null))
        rows.append(_line(cells))
    return "\n".join(rows)


def _middle(values: list[float | None] | list[float]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _ratio(pair: list[float | None]) -> float | None:
    return pair[0] / pair[1] if len(pair) == 2 and pair[0] is not None and pair[1] else None


def _goal(figure: Metric) -> str:
    least = "≥" if figure.more else "≤"
    asked = [f"{least} {figure.goal:g}"] if figure.goal is not None else []
    asked += [f"{least} {figure.limit:g} here"] if figure.limit is not None else []
    return ", ".join(asked)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _two_places(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
