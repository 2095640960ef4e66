"""Turns readings into tables, one for each row, with the promise beside every number."""

from collections.abc import Callable
from statistics import median
from typing import Final

from bench.peers.brokers import Broker
from bench.peers.rows import ROWS, Figures

CRASH: Final = "crash"
# row -> size -> name of the broker -> the figures of each run
Results = dict[str, dict[str, dict[str, list[Figures]]]]

_BODIES: Final = {"200": "200 B", "4k": "4 KB", "mixed": "100 to 300 B"}
_CRASH: Final = {
    "waiting": ("messages wait", "{:,.0f}"),
    "bytes": ("memory of each (B)", "{:,.0f}"),
    "server us": ("server us each", "{:.2f}"),
    "idle %": ("% of a processor, idle", "{:.1f}"),
    "start s": ("start (s)", "{:.2f}"),
    "first message s": ("first message (s)", "{:.2f}"),
    "answered": ("answered", "{:,.0f}"),
    "lost": ("lost", "{:,.0f}"),
    "twice": ("twice", "{:,.0f}"),
}


def page(results: Results, found: list[Broker]) -> str:
    parts = []
    for row, sizes in results.items():
        title = ROWS[row].title if row in ROWS else "kill -9 with a backlog"
        if row == "latency":
            parts += [part(f"{title}, {_BODIES[size]} (ms)", _latency(sizes[size], found)) for size in sizes]
        elif row == CRASH:
            parts += [part(f"{title}, {_BODIES[size]}", _crash(sizes[size], found)) for size in sizes]
        else:
            parts.append(part(title, _rates(sizes, found)))
    return "\n\n".join(parts)


def part(title: str, lines: list[list[str]]) -> str:
    head, *rest = lines
    rule = ["---"] * 3 + ["--:"] * (len(head) - 3)
    return f"### {title}\n\n" + "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rest))


def _rates(sizes: dict[str, dict[str, list[Figures]]], found: list[Broker]) -> list[list[str]]:
    """Return messages a second, the cost of each for server and load, and the number of disk flushes."""
    head = ["broker", "survives", "by"]
    for size in sizes:
        head += [f"{_BODIES[size]}, msg/s", "server us", "load us", "flushes"]
    figures: tuple[tuple[str, str], ...] = (
        ("rate", "{:,.0f}"), ("server us", "{:.2f}"), ("load us", "{:.2f}"), ("flushes", "{:.3g}")
    )  # fmt: skip
    return [head, *_lines(found, [(sizes[size], name, form) for size in sizes for name, form in figures])]


def _latency(runs: dict[str, list[Figures]], found: list[Broker]) -> list[list[str]]:
    names = [f"{until} {share}" for until in ("answer", "consumer") for share in ("p50", "p99", "p99.9")]
    head = ["broker", "survives", "by", *names, "server us", "load us"]
    return [head, *_lines(found, [(runs, name, "{:,.3g}") for name in (*names, "server us", "load us")])]


def _crash(runs: dict[str, list[Figures]], found: list[Broker]) -> list[list[str]]:
    head = ["broker", "survives", "by", *(title for title, _ in _CRASH.values())]
    return [head, *_lines(found, [(runs, name, form) for name, (_, form) in _CRASH.items()])]


def _lines(found: list[Broker], cells: list[tuple[dict[str, list[Figures]], str, str]]) -> list[list[str]]:
    lines = []
    for broker in found:
        values = [_value(runs.get(broker.name, []), name, form.format) for runs, name, form in cells]
        if any(values):
            lines.append([broker.name, broker.promise, broker.by, *values])
    return lines


def _value(runs: list[Figures], name: str, form: Callable[[float], str]) -> str:
    known = [one[name] for one in runs if name in one]
    if known:
        return form(median(known))
    return "failed" if any("failed" in one for one in runs) else ""
