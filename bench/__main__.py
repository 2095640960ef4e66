"""``python -m bench``: measure an nsqd, or two of them in alternating runs."""

import argparse
import json
import os
import platform
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from bench import report
from bench.load import READ_SIZE, LoadError
from bench.rows import ROWS, Plan, Sample
from bench.server import OURS, Server, found_at, parse_address, started


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure an nsqd: throughput and server CPU per message, alone or beside a peer.",
        epilog="A command template may use {tcp} and {http} (HOST:PORT), {data} (a new folder), {mem}.",
    )
    parser.add_argument("--cmd", default=OURS, help="how to start the server (default: python -m nsqd)")
    parser.add_argument("--nsqd", metavar="HOST:PORT", help="measure a running server instead")
    parser.add_argument("--http", metavar="HOST:PORT", help="its HTTP address (default: port + 1)")
    parser.add_argument("--pid", type=int, help="its process id (default: who listens on the port)")
    parser.add_argument("--name", default="ours", help="what to call it in the table")
    parser.add_argument("--peer-cmd", metavar="CMD", help="how to start a second server to compare with")
    parser.add_argument("--peer", metavar="HOST:PORT", help="compare with a running server")
    parser.add_argument("--peer-http", metavar="HOST:PORT", help="its HTTP address (default: port + 1)")
    parser.add_argument("--peer-pid", type=int, help="the peer's process id")
    parser.add_argument("--peer-name", default="peer", help="what to call the peer in the table")
    parser.add_argument("--rows", default=",".join(ROWS), help="comma-separated, of: %(default)s")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each row on each server")
    parser.add_argument("--messages", type=int, default=400_000, help="most messages of a run")
    parser.add_argument("--seconds", type=float, default=3.0, help="longest publishing of a run")
    parser.add_argument("--size", type=int, default=200, help="body size in bytes")
    parser.add_argument("--sizes", choices=["mixed"], help="bodies of 32 bytes to 4 kB instead of --size")
    parser.add_argument("--mem-queue-size", type=int, default=10_000, help="{mem} of the templates")
    parser.add_argument("--data-root", help="where data folders are made (default: the temporary folder)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to FILE")
    args = parser.parse_args(arguments)
    args.rows = args.rows.split(",")
    if unknown := [row for row in args.rows if row not in ROWS]:
        parser.error(f"no such row: {', '.join(unknown)}")
    if not 1 <= args.size <= READ_SIZE // 4:
        parser.error(f"--size must be between 1 and {READ_SIZE // 4}")
    if args.repeat < 1 or args.messages < 1000:
        parser.error("--repeat must be at least 1 and --messages at least 1000")
    return args


def open_server(stack: ExitStack, args: argparse.Namespace, prefix: str, name: str) -> Server | None:
    """The server that the options with this prefix describe, or None when there are none."""
    given = vars(args)
    address = given["peer" if prefix else "nsqd"]
    if address:
        tcp = parse_address(address)
        web = given[f"{prefix}http"]
        return found_at(name, tcp, parse_address(web) if web else (tcp[0], tcp[1] + 1), given[f"{prefix}pid"])
    if template := given[f"{prefix}cmd"]:
        return stack.enter_context(started(name, template, args.mem_queue_size, args.data_root))
    return None


def measure(servers: list[Server], rows: list[str], repeat: int, plan: Plan) -> dict[str, list[list[Sample]]]:
    """Run every row, the servers taking turns so that a busy moment of the machine hits both."""
    results: dict[str, list[list[Sample]]] = {}
    for row in rows:
        results[row] = [[] for _ in servers]
        for turn in range(repeat):
            for server, samples in zip(servers, results[row], strict=True):
                sample = ROWS[row][1](server, plan)
                samples.append(sample)
                print(
                    f"{row:7} {turn + 1}/{repeat} {server.name:10} {sample.rate:>11,.0f}/s"
                    f" {sample.server_us:6.2f} us/msg (load {sample.load_us:.2f}),"
                    f" {sample.messages:,} in {sample.seconds:.2f} s",
                    file=sys.stderr,
                )
    return results


def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # either way the servers and folders go
    plan = Plan(None if args.sizes else args.size, args.messages, args.seconds)
    try:
        with ExitStack() as stack:
            found = [
                open_server(stack, args, "", args.name),
                open_server(stack, args, "peer_", args.peer_name),
            ]
            servers = [server for server in found if server]
            names = [server.name for server in servers]
            results = measure(servers, args.rows, args.repeat, plan)
            about = {
                "servers": {s.name: s.about() for s in servers},
                "python": platform.python_version(),
                "cpus": os.cpu_count(),
                "size": plan.size or "mixed",
                "mem_queue_size": args.mem_queue_size,
            }
    except LoadError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(report.table(results, names))
    print()
    print(json.dumps(about))
    if args.json:
        args.json.write_text(json.dumps({"about": about, "rows": report.as_json(results, names)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
