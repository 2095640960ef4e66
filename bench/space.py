"""``python -m bench.space``: compares a topic's disk usage with what is wanted while a message is held.

Publishes at a rate and consumes at once. A message is held meanwhile: it is deferred for an hour, or in
flight at a consumer that never answers; or a tail holds all messages that it gets and never finishes. Prints
the disk usage of each second.
"""

import argparse
import itertools
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import load
from bench.disk import disk_in_use
from bench.load import LoadError
from bench.server import OURS, Address, Program, Server

TOPIC: Final = "space"
SIZE: Final = 10_000
PER_BATCH: Final = 50
MIB: Final = 1 << 20
# Seconds for which the disk is watched after the last message.
REST_S: Final = 15
# Longer than any run, because the reader cannot handle heartbeats.
HEARTBEAT_S: Final = 3600


@dataclass(slots=True)
class Case:
    """A function that holds messages, and the number of bytes that are wanted because of them."""

    hold: Callable[[Address], object]
    wanted: int


def _deferred(address: Address) -> object:
    conn = load.connect(address)
    conn.sendall(b"DPUB %b 3600000\n%b%b" % (TOPIC.encode(), SIZE.to_bytes(4, "big"), b"x" * SIZE))
    load.expect_ok(conn)
    return conn


def _stuck(address: Address) -> object:
    conn = load.connect(address)
    load.subscribe(conn, TOPIC, "ch")
    conn.sendall(b"RDY 1\n" + load.encode_pub(TOPIC, b"x" * SIZE))
    load.expect_ok(conn)
    return conn


def _tail(address: Address) -> object:
    conn = load.connect(address)
    load.subscribe(conn, TOPIC, "tail#ephemeral")
    conn.sendall(b"RDY 100\n")
    return conn


# An ephemeral channel drops messages beyond the memory limit.
LIMIT: Final = 1000
CASES: Final = {
    "deferred": Case(_deferred, SIZE),
    "stuck": Case(_stuck, SIZE),
    "tail": Case(_tail, (LIMIT + 100) * SIZE),
}


def publish(address: Address, bytes_per_second: int, seconds: float) -> int:
    """Publish at that rate; return the number of bytes."""
    conn = load.connect(address, heartbeat_interval=-1)
    batch = load.encode_mpub(TOPIC, load.bodies(SIZE, PER_BATCH))
    began = time.monotonic()
    for count in itertools.count(1):
        conn.sendall(batch)
        load.expect_ok(conn)
        ahead = count * len(batch) / bytes_per_second - (time.monotonic() - began)
        if ahead > 0:
            time.sleep(ahead)
        if time.monotonic() - began > seconds:
            return count * len(batch)
    raise AssertionError("count never ends")


def consume(address: Address, ended: threading.Event) -> None:
    conn = load.connect(address, heartbeat_interval=1000 * HEARTBEAT_S)
    load.subscribe(conn, TOPIC, "ch")
    for _ in load.consume(conn, SIZE):
        if ended.is_set():
            return


def watch(server: Server, folder: Path, case: Case, rate: int, seconds: float) -> list[int]:
    """Publish with one message held; return the disk usage of each second, also for REST_S afterwards."""
    server.ask("POST", f"/topic/create?topic={TOPIC}")
    server.ask("POST", f"/channel/create?topic={TOPIC}&channel=ch")
    held = case.hold(server.tcp)
    ended = threading.Event()
    threads = [
        threading.Thread(target=consume, args=(server.tcp, ended), daemon=True),
        threading.Thread(target=publish, args=(server.tcp, rate, seconds), daemon=True),
    ]
    for thread in threads:
        thread.start()
    found = []
    while len(found) < seconds + REST_S:
        time.sleep(1)
        found.append(disk_in_use(folder / f"{TOPIC}.topic"))
    ended.set()
    for thread in threads:
        thread.join(10)
    del held
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.space", description=__doc__)
    parser.add_argument("--cmd", default=OURS, help="how to start the server (default: python -m nsqd)")
    parser.add_argument("--cases", default=",".join(CASES), help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--seconds", type=float, default=60, help="how long is published")
    parser.add_argument("--rate", type=int, default=30, help="MB of bodies a second")
    parser.add_argument("--segment", type=int, default=100 * MIB, help="--max-bytes-per-file")
    parser.add_argument("--data-root", help="where data folders are made (default: the temporary folder)")
    args = parser.parse_args(arguments)
    program = Program("ours", args.cmd, args.data_root)
    flags = (f"--max-bytes-per-file={args.segment}", f"--mem-queue-size={LIMIT}", "--msg-timeout=15m")
    flags += (f"--max-heartbeat-interval={HEARTBEAT_S}s",)
    print("| held, in MB | wanted | and 4 segments | most meanwhile | 15 s after | each fifth second |")
    print("|---|--:|--:|--:|--:|---|")
    failed = False
    for name in args.cases.split(","):
        case = CASES[name]
        with program.folder() as data, program.serving(flags, data) as server:
            try:
                found = watch(server, data, case, args.rate * 1_000_000, args.seconds)
            except LoadError as error:
                print(f"{name}: {error}", file=sys.stderr)
                return 1
        allowed = case.wanted + 4 * args.segment
        failed |= found[-1] > allowed
        megabytes = [f"{one / 1e6:.1f}" for one in (case.wanted, allowed, max(found), found[-1])]
        steps = " ".join(f"{one / 1e6:.0f}" for one in found[4::5])
        print(f"| {name} | {' | '.join(megabytes)} | {steps} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
