"""Samples to a table: medians of the runs, and the ratio of the two servers."""

from collections.abc import Mapping
from statistics import median
from typing import Any

from bench.rows import ROWS, Sample

# row -> one list of samples per server, in the order of the servers
Results = Mapping[str, list[list[Sample]]]


def table(results: Results, names: list[str]) -> str:
    """A Markdown table; with two servers the last columns are the first one's share of the second one's."""
    head = ["row"]
    for name in names:
        head += [f"{name} msg/s", f"{name} us/msg"]
    if len(names) == 2:
        head += ["rate ratio", "CPU ratio"]
    head.append("load us/msg")
    lines = [_line(head), _line(["---"] + ["--:"] * (len(head) - 1))]
    for row, runs in results.items():
        rates, costs = [_medians(runs, attribute) for attribute in ("rate", "server_us")]
        cells = [ROWS[row][0]]
        for rate, cost in zip(rates, costs, strict=True):
            cells += [f"{rate:,.0f}", f"{cost:.2f}"]
        if len(names) == 2:
            cells += [_ratio(rates), _ratio(costs)]
        cells.append(f"{max(_medians(runs, 'load_us')):.2f}")
        lines.append(_line(cells))
    return "\n".join(lines)


def as_json(results: Results, names: list[str]) -> dict[str, Any]:
    """Every sample, for a later look."""
    return {
        row: {
            name: [
                {
                    "messages": s.messages,
                    "seconds": round(s.seconds, 4),
                    "rate": round(s.rate),
                    "server_us": round(s.server_us, 3),
                    "load_us": round(s.load_us, 3),
                }
                for s in samples
            ]
            for name, samples in zip(names, runs, strict=True)
        }
        for row, runs in results.items()
    }


def _medians(runs: list[list[Sample]], attribute: str) -> list[float]:
    return [median(getattr(sample, attribute) for sample in samples) for samples in runs]


def _ratio(pair: list[float]) -> str:
    return f"{pair[0] / pair[1]:.2f}" if pair[1] else "-"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
