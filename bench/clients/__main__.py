"""``python -m bench.clients --python PYTHON``: our client and four others on one nsqd, taking turns.

PYTHON is an interpreter with the other libraries and the requirements of our client, which is taken from this
tree:

    python3 -m venv peers
    peers/bin/pip install ansq==0.3.0 asyncnsq==1.2.1 pynsq==0.9.1 gnsq==1.0.2 aiohttp cramjam msgspec uvloop
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench.clients.load import LIBRARIES
from bench.load import LoadError
from bench.server import OURS, Program, Server

TREE = Path(__file__).parents[2]
TIMEOUT_S = 120

# work -> its title in the table
WORKS = {
    "publish": "publish, many under way",
    "publish-one": "publish, one after the other",
    "publish-gather": "publish, 1,000 awaited together",
    "mpub": "publish in batches of 100",
    "sync-submit": "publish without asyncio, many under way",
    "consume": "consume, FIN for each",
    "consume-async": "consume by a coroutine",
    "consume-threads": "consume in four threads",
}
# Messages a second, and microseconds of CPU time per message.
Result = tuple[float, float]

# pynsq and gnsq have no coroutines, ansq and asyncnsq have only coroutines, and none has handlers in threads.
# Works that a library does not support are left out for it.
ONLY = {
    "publish-gather": {"ours", "ansq", "asyncnsq"},
    "sync-submit": {"ours", "gnsq"},
    "consume-async": {"ours"},
    "consume-threads": {"ours"},
}
ALIKE = {"mpub", "publish-one"}  # the libraries have similar rates
LONG = 1000  # bytes; with longer bodies all libraries publish the same number of messages
SLOWER = {"publish-one": 40, "consume-threads": 5}  # divides the number of messages


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.clients", description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter with the other libraries")
    parser.add_argument("--libraries", default=",".join(LIBRARIES), help="comma-separated, of: %(default)s")
    parser.add_argument("--works", default=",".join(WORKS), help="comma-separated, of: %(default)s")
    parser.add_argument("--loop", default="uvloop", choices=["uvloop", "asyncio"], help="the event loop")
    parser.add_argument("--cmd", default=OURS, help="how to start the server (default: python -m nsqd)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each, in turns")
    parser.add_argument("--messages", type=int, default=30_000, help="messages of a run; ours does ten times")
    parser.add_argument("--size", type=int, default=200, help="body size in bytes")
    args = parser.parse_args(arguments)
    args.libraries, args.works = args.libraries.split(","), args.works.split(",")
    return args


def run(args: argparse.Namespace, server: Server, library: str, work: str, topic: str, count: int) -> Result:
    """Run one work; return messages a second, and the client's CPU time per message in microseconds."""
    address = f"{server.tcp[0]}:{server.tcp[1]}"
    words = [library, work, args.loop, address, topic, str(args.size), str(count)]
    done = subprocess.run(
        [args.python, "-m", "bench.clients.load", *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=TREE,
        env={**os.environ, "PYTHONPATH": f"{TREE}{os.pathsep}{TREE / 'client'}"},
    )
    if done.returncode:
        raise LoadError(f"{library} {work}: {done.stderr[-1500:]}")
    said = json.loads(done.stdout.splitlines()[-1])
    return float(said["rate"]), float(said["cpu_us"])


def measure(args: argparse.Namespace, server: Server) -> dict[tuple[str, str], Result]:
    """Return the medians of each library for each work."""
    results: dict[tuple[str, str], list[Result]] = {}
    for work in args.works:
        for turn in range(args.repeat):
            for library in args.libraries:
                if library not in ONLY.get(work, args.libraries):
                    continue
                # If rates differ tenfold, runs of equal duration are fairer than runs of equal size; if rates
                # are similar, a busy machine disturbs a short run more than a long one.
                is_short = library != "ours" and work not in ALIKE
                # With long messages a longer run would measure the disk instead of the library.
                count = args.messages if is_short or args.size > LONG else args.messages * 10
                count //= SLOWER.get(work, 1)
                topic = f"{library}-{work}-{turn}"
                if work.startswith("consume"):
                    server.ask("POST", f"/topic/create?topic={topic}")
                    server.ask("POST", f"/channel/create?topic={topic}&channel=bench")
                    run(args, server, "ours", "mpub", topic, count)
                result = run(args, server, library, work, topic, count)
                check(server, topic, work, count)
                server.ask("POST", f"/topic/delete?topic={topic}")
                results.setdefault((work, library), []).append(result)
                figures = f"{result[0]:>10,.0f}/s {result[1]:8.2f} us"
                print(f"{work:13} {turn + 1}/{args.repeat} {library:6} {figures}", file=sys.stderr)
    return {
        key: (statistics.median(rate for rate, _ in found), statistics.median(cpu for _, cpu in found))
        for key, found in results.items()
    }


def check(server: Server, topic: str, work: str, count: int) -> None:
    """Raise LoadError if a message is missing, because the rate would not be valid."""
    stats = server.topic_stats(topic)
    if stats["message_count"] != count:
        raise LoadError(f"{topic}: {stats['message_count']} of {count} messages arrived")
    if work.startswith("consume"):
        [channel] = stats["channels"]
        left = channel["depth"] + channel["in_flight_count"] + channel["deferred_count"]
        if left or channel["timeout_count"] or channel["requeue_count"]:
            raise LoadError(f"{topic}: {left} messages left of {count}")


def table(args: argparse.Namespace, results: dict[tuple[str, str], Result]) -> str:
    lines = ["| messages a second (CPU of the client, us) | " + " | ".join(args.libraries) + " | ratio |"]
    lines.append("|---" * (len(args.libraries) + 2) + "|")
    for work in args.works:
        found = {library: results[work, library] for library in args.libraries if (work, library) in results}
        others = [found[library] for library in found if library != "ours"]
        ratio = ""
        if others and "ours" in found:
            fastest, least = max(rate for rate, _ in others), min(cpu for _, cpu in others)
            ratio = f"{found['ours'][0] / fastest:.1f} ({least / found['ours'][1]:.1f})"
        cells = [
            f"{found[library][0]:,.0f} ({found[library][1]:.1f})" if library in found else ""
            for library in args.libraries
        ]
        lines.append(f"| {WORKS[work]} | " + " | ".join(cells) + f" | {ratio} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    with Program("nsqd", args.cmd).serving(["--mem-queue-size", "1000000"]) as server:
        print(table(args, measure(args, server)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
