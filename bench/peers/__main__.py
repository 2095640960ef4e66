"""``python -m bench.peers --data-root FOLDER``: measures our nsqd and other brokers in turns in one run."""

import argparse
import json
import os
import platform
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.figures import Plan
from bench.load import LoadError
from bench.peers import brokers, tables
from bench.peers.brokers import Broker
from bench.peers.crash import crash
from bench.peers.process import running
from bench.peers.rows import ROWS, Target
from bench.peers.tables import CRASH, Results

SIZES = {"200": 200, "4k": 4096, "mixed": None}
# Size -> the rows measured with it, unless --rows says otherwise.
USUAL = {
    "200": ("one", "many", "batches", "shuffled", "both", "latency", CRASH),
    "4k": ("one", "many", "batches", "both", "latency"),
    "mixed": ("batches", "both"),
}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers",
        description="Our nsqd beside NATS JetStream, Redis Streams and RabbitMQ, those that are installed.",
        epilog="To install them: apt-get install nats-server redis-server rabbitmq-server",
    )
    parser.add_argument(
        "--ours",
        action="append",
        metavar="NAME=CMD",
        help="an nsqd of ours, several times (default: of this tree)",
    )
    parser.add_argument("--nsqd", metavar="CMD", help="the original's nsqd")
    parser.add_argument("--only", help="comma-separated words; brokers whose name has one of them")
    parser.add_argument("--rows", help=f"comma-separated, of: {','.join(measured())}")
    parser.add_argument("--sizes", default=",".join(SIZES), help="comma-separated, of: %(default)s")
    parser.add_argument("--seconds", type=float, default=0.7, help="longest publishing of a run")
    parser.add_argument("--messages", type=int, default=400_000, help="most messages of a run")
    parser.add_argument("--backlog", type=int, default=400_000, help="most messages that wait at the kill")
    parser.add_argument("--repeat", type=int, default=2, help="runs of each row on each broker, in turns")
    parser.add_argument(
        "--data-root", type=Path, help="where data folders are made (default: the temporary folder)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every reading to FILE")
    args = parser.parse_args(arguments)
    args.sizes = args.sizes.split(",")
    if unknown := [size for size in args.sizes if size not in SIZES]:
        parser.error(f"no such size: {unknown[0]}")
    args.rows = args.rows.split(",") if args.rows else None
    if args.rows and (unknown := [row for row in args.rows if row not in measured()]):
        parser.error(f"no such row: {unknown[0]}")
    args.ours = args.ours or brokers.default_ours()
    if unknown := [one for one in args.ours if "=" not in one]:
        parser.error(f"--ours is NAME=CMD, not {unknown[0]}")
    return args


def measured() -> list[str]:
    return [*(name for name, row in ROWS.items() if row.run), CRASH]


def chosen(args: argparse.Namespace) -> list[Broker]:
    found: list[Broker] = []
    for one in args.ours:
        name, _, program = one.partition("=")
        found += brokers.ours(name, shlex.split(program))
    if args.nsqd:
        found += brokers.original(args.nsqd)
    found += brokers.packaged()
    words = args.only.split(",") if args.only else [""]
    return [one for one in found if any(word in one.name for word in words)]


def rows_of(args: argparse.Namespace, size: str) -> list[str]:
    return [row for row in measured() if row in (args.rows or USUAL[size])]


def steady(args: argparse.Namespace, found: list[Broker], root: Path, results: Results) -> None:
    """Measure brokers that all run; all but the measured one are stopped by signal meanwhile."""
    if not any(row != CRASH for size in args.sizes for row in rows_of(args, size)):
        return
    with ExitStack() as stack:
        targets = []
        for number, broker in enumerate(found):
            folder = root / f"broker{number}"
            one = stack.enter_context(running(broker.commands, broker.speech.ready, folder))
            targets.append(Target(broker, one, folder))
            one.hold()
        for size in args.sizes:
            plan = Plan(SIZES[size], args.messages, args.seconds)
            for row in rows_of(args, size):
                for _ in range(args.repeat if row != CRASH else 0):
                    for target in targets:
                        target.running.go_on()
                        measure(row, size, target, plan, results)
                        target.running.hold()


def measure(row: str, size: str, target: Target, plan: Plan, results: Results) -> None:
    try:
        for name, figures in ROWS[row].run(target, plan).items():
            note(results, name, size, target.broker, figures)
    except (LoadError, OSError) as error:
        print(f"bench: {row} {size}, {target.broker.name}: {error}", file=sys.stderr)
        note(results, row, size, target.broker, {"failed": 1})


def crashes(args: argparse.Namespace, found: list[Broker], root: Path, results: Results) -> None:
    for size in args.sizes:
        for number, broker in enumerate(found if CRASH in rows_of(args, size) and SIZES[size] else ()):
            folder = root / f"crash{number}"
            try:
                figures = crash(broker, folder, SIZES[size], args.backlog, 8 * args.seconds)
            except (LoadError, OSError) as error:
                print(f"bench: {CRASH} {size}, {broker.name}: {error}", file=sys.stderr)
                figures = {"failed": 1}
            note(results, CRASH, size, broker, figures)
            shutil.rmtree(folder, ignore_errors=True)


def note(results: Results, row: str, size: str, broker: Broker, figures: dict[str, float]) -> None:
    results.setdefault(row, {}).setdefault(size, {}).setdefault(broker.name, []).append(figures)
    said = " ".join(f"{name} {value:,.6g}" for name, value in figures.items())
    print(f"{row:8} {size:6} {broker.name:28} {said}", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM also ends servers and removes folders
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    found = chosen(args)
    results: Results = {}
    began = time.monotonic()
    root = Path(tempfile.mkdtemp(prefix="nsq-peers-", dir=args.data_root))
    try:
        steady(args, found, root, results)
        crashes(args, found, root, results)
    except LoadError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(root, ignore_errors=True)
    about = {
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "seconds": round(time.monotonic() - began),
        "load average": os.getloadavg()[0],
        "repeat": args.repeat,
    }
    if args.json:
        survives = {broker.name: broker.promise for broker in found}
        args.json.write_text(json.dumps({"about": about, "survives": survives, "results": results}, indent=1))
    print(tables.page(results, found))
    print(json.dumps(about))
    return 0


if __name__ == "__main__":
    sys.exit(main())
