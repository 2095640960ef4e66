"""A run as HTML with charts, as JSON, as CSV with a row for each second, and as lines on a terminal."""

import csv
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from load.daemons import DaemonUsage
from load.plots import Line, chart
from load.verdict import RunResult, summary


def write_report(
    folder: Path,
    result: RunResult,
    problems: list[str],
    curve: list[dict[str, Any]],
    depths: Sequence[tuple[float, int]],
) -> None:
    """Write ``report.html``, ``report.json`` and ``report.csv`` to *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    totals = summary(result)
    plain = json.dumps({**totals, "problems": problems}, indent=2)
    (folder / "report.json").write_text(plain + "\n", encoding="utf-8")
    seconds = per_second(curve)
    with (folder / "report.csv").open("w", encoding="utf-8", newline="") as file:
        columns = ["second", "users", "published", "received", "again", "errors"]
        times = sorted({key for row in seconds for key in row} - set(columns))
        writer = csv.DictWriter(file, [*columns, *times], restval="")
        writer.writeheader()
        writer.writerows(seconds)
    # Imported here because --help and --version do not need it.
    from jinja2 import Environment, PackageLoader

    page = Environment(loader=PackageLoader("load", "."), autoescape=True).get_template("report.html")
    when = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    charts = _charts(seconds, _began(curve), depths, result.usages)
    (folder / "report.html").write_text(
        page.render(run=totals, problems=problems, when=when, charts=charts), encoding="utf-8"
    )


def per_second(curve: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Return the samples of a run as differences to the sample before; times are named as ``publish p99``."""
    began = _began(curve)
    samples = [line for line in curve if "event" not in line]
    rows = []
    before = {"time": began, "acked": 0, "received": 0, "again": 0, "errors": 0}
    for sample in samples:
        passed = max(sample["time"] - before["time"], 1e-3)
        row = {"second": round(sample["time"] - began, 1), "users": sample["users"]}
        for name, key in (("published", "acked"), ("received", "received")):
            row[name] = round((sample[key] - before[key]) / passed, 1)
        for key in ("again", "errors"):
            row[key] = sample[key] - before[key]
        for name, (median, high) in sample["latency"].items():
            row[f"{name} p50"], row[f"{name} p99"] = median, high
        rows.append(row)
        before = sample
    return rows


def _began(curve: list[dict[str, Any]]) -> float:
    return float(next((line["time"] for line in curve if line.get("event") == "begins"), 0.0))


def _charts(
    rows: list[dict[str, float]], began: float, depths: Sequence[tuple[float, int]], usages: list[DaemonUsage]
) -> list[str]:
    def line(key: str) -> Line:
        return [(row["second"], row[key]) for row in rows if key in row]

    def after(points: Sequence[tuple[float, float]]) -> Line:
        return [(at - began, value) for at, value in points if at >= began]

    names = [f"{what} {percent}" for what in ("publish", "delivery") for percent in ("p50", "p99")]
    others = [f"{what} p99" for what in ("lookup", "page")]
    drawn = [
        chart("Messages a second", "1/s", {key: line(key) for key in ("published", "received")}),
        chart("Time", "ms, logarithmic", {key: line(key) for key in names}, logarithmic=True),
        chart("Backlog of all nsqd", "messages", {"pending": after(depths)}),
        chart("Processors", "of each daemon", {usage.name: after(_cores(usage)) for usage in usages}),
        chart(
            "Memory",
            "MB",
            {c.name: after([(at, cost.memory_mb) for at, cost in c.samples]) for c in usages},
        ),
        chart("Delivered again and errors", "1/s", {key: line(key) for key in ("again", "errors")}),
        chart("Lookups and pages", "ms", {key: line(key) for key in others}),
    ]
    return [svg for svg in drawn if svg]


def _cores(usage: DaemonUsage) -> list[tuple[float, float]]:
    pairs = zip(usage.samples, usage.samples[1:], strict=False)
    return [
        (at, max(0.0, after.cpu_s - before.cpu_s) / (at - since))
        for (since, before), (at, after) in pairs
        if at > since
    ]


def lines(result: RunResult) -> list[str]:
    """Return the summary of a run for the terminal."""
    totals = summary(result)
    again = ", ".join(f"{times:,} {cause}" for cause, times in sorted(totals["duplicates"].items())) or "none"
    found = [
        (
            f"{totals['acknowledged']:,} acknowledged ({totals['published_per_second']:,.0f}/s),"
            f" {totals['received']:,} received, missing {totals['missing']:,}, unknown {totals['unknown']:,},"
            f" {totals['without_an_answer']:,} without an answer, {totals['refused']:,} refused"
        ),
        f"delivered again: {again}",
    ]
    counts = [f"{times:,} {what}" for what, times in sorted(totals["counts"].items()) if times]
    found += [f"counted: {', '.join(counts)}"] if counts else []
    found.append(f"{'ms':18} {'count':>10} {'p50':>9} {'p99':>9} {'p99.9':>9} {'longest':>9}")
    for name, t in totals["latency_ms"].items():
        found.append(
            f"{name:18} {t['count']:>10,} {t['p50']:>9.2f} {t['p99']:>9.2f}"
            f" {t['p99.9']:>9.2f} {t['longest']:>9.1f}"
        )
    found += [
        f"{name}: {cost['cores']:.2f} processors, {cost['memory_mb']:.0f} MB"
        for name, cost in totals["daemons"].items()
    ]
    return found
