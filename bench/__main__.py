"""``python -m bench``: measure an nsqd, or two of them in alternating runs."""

import argparse
import json
import os
import platform
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from bench import report
from bench.load import READ_SIZE, LoadError
from bench.metrics import Plan, Readings, Row
from bench.rows import GROUPS, ROWS, USUAL, chosen
from bench.server import NULL, OURS, Program, Server

NULL_NAME = "null server"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure an nsqd: throughput, latency and what it costs, alone or next to a peer.",
        epilog="A command template may use {tcp} and {http} (HOST:PORT) and {data} (a folder)."
        f" Groups of rows: {', '.join(GROUPS)}. Rows: {', '.join(ROWS)}.",
    )
    parser.add_argument("--cmd", default=OURS, help="how to start the server (default: python -m nsqd)")
    parser.add_argument("--peer-cmd", metavar="CMD", help="how to start a second server to compare with")
    parser.add_argument("--null", action="store_true", help="measure a server that does nothing as well")
    parser.add_argument(
        "--rows",
        default=USUAL,
        help="rows and groups (default: all but headers and replication)",
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs of each row on each server")
    parser.add_argument("--messages", type=int, default=500_000, help="most messages of a run")
    parser.add_argument("--seconds", type=float, default=1.5, help="longest publishing of a run")
    parser.add_argument("--size", type=int, default=200, help="body size in bytes")
    parser.add_argument("--sizes", choices=["mixed"], help="bodies of 32 bytes to 4 kB instead of --size")
    parser.add_argument(
        "--mem-queue-size", type=int, default=10_000_000, help="the flag of servers whose row names none"
    )
    parser.add_argument("--data-root", help="where data folders are made (default: the temporary folder)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every reading to FILE")
    args = parser.parse_args(arguments)
    try:
        args.rows = chosen(args.rows)
    except KeyError as unknown:
        parser.error(f"no such row: {unknown.args[0]}")
    if not 1 <= args.size <= READ_SIZE // 4:
        parser.error(f"--size must be between 1 and {READ_SIZE // 4}")
    if args.repeat < 1 or args.messages < 1000:
        parser.error("--repeat must be at least 1 and --messages at least 1000")
    return args


def programs(args: argparse.Namespace) -> list[Program]:
    found = [Program("ours", args.cmd, args.data_root)]
    if args.peer_cmd:
        found.append(Program("peer", args.peer_cmd, args.data_root))
    if args.null:
        found.append(Program(NULL_NAME, NULL, args.data_root, null=True))
    return found


@contextmanager
def targets(
    measured: list[Program], row: Row, mem_queue_size: int, about: dict[str, Any]
) -> Iterator[list[Program | Server]]:
    """Yield the servers for rows with the flags of *row*, started with these flags."""
    # If a flag is given twice, the last one counts.
    flags = ("--mem-queue-size", str(mem_queue_size), *(row.flags() if callable(row.flags) else row.flags))
    with ExitStack() as stack:
        found = [
            one if row.own else stack.enter_context(one.serving(flags))
            for one in measured
            if row.null or not one.null
        ]
        yield found
        about |= {one.name: one.about() for one in found if isinstance(one, Server)}


def measure(
    measured: list[Program], rows: list[Row], args: argparse.Namespace, plan: Plan
) -> tuple[dict[str, dict[str, list[Readings]]], dict[str, Any]]:
    """Run every row; the servers take turns, so that a busy moment of the machine affects both."""
    results: dict[str, dict[str, list[Readings]]] = {}
    about: dict[str, Any] = {}
    for _, alike in groupby(rows, key=lambda row: (row.flags, row.own, row.null)):
        group = list(alike)
        with targets(measured, group[0], args.mem_queue_size, about) as found:
            for row in group:
                results[row.name] = {one.name: [] for one in found}
                for turn in range(min(args.repeat, row.most_runs or args.repeat)):
                    for one in found:
                        readings = row.run(one, plan)
                        results[row.name][one.name].append(readings)
                        print(report.short(row, one.name, turn, readings), file=sys.stderr, flush=True)
    return results, about


def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM also ends servers and removes folders
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # inherited by servers and load
    plan = Plan(None if args.sizes else args.size, args.messages, args.seconds)
    try:
        measured = programs(args)
        results, servers = measure(measured, args.rows, args, plan)
    except LoadError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    about = {
        "servers": servers,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "size": plan.size or "mixed",
        "mem_queue_size": args.mem_queue_size,
    }
    if args.json:
        report.save(args.json, results, about)
    names = [one.name for one in measured if not one.null]
    null = NULL_NAME if args.null else None
    print(report.table(report.lines(results, names, null), names, null))
    print()
    print(json.dumps(about))
    return 0


if __name__ == "__main__":
    sys.exit(main())
