"""Clients that could fill the memory of a node or stall it.

One sends a few bytes that expand to millions of commands; one is a consumer of long messages that samples and
does not read.
"""

import threading
import time
from contextlib import closing, suppress
from typing import Final

from bench import layered, load
from bench.load import LoadError
from bench.metrics import Plan, Reading, Readings, Row, less
from bench.paced import percentile
from bench.rows.work import create, delete
from bench.server import Server

# They take 622 KB under deflate.
NOPS: Final = 160_000_000
AT_ONCE: Final = 1_000_000
BEHIND: Final = "behind#ephemeral"
WATCHED_S: Final = 4.0
EVERY_S: Final = 0.002
WAIT_MS: Final = 5.0

BODIES: Final = 300
BODY: Final = 1_000_000
RATE: Final = 99
WATCHED_MEMORY_S: Final = 2.0
MEMORY_MIB: Final = 32.0


def bomb(server: Server, _plan: Plan) -> Readings:
    """Measure how long a small PUB waits while the node parses NOPs, and without them."""
    quiet, _ = _waits(server)
    with closing(layered.connect(server.tcp, "deflate")) as conn:
        packed = conn.prepare(b"NOP\n" * AT_ONCE) * (NOPS // AT_ONCE)
        packed += conn.prepare(load.encode_pub(BEHIND, b"behind them"))
        sender = threading.Thread(target=_send, args=(conn, packed), daemon=True)
        sender.start()
        beside, cpu = _waits(server)
        if BEHIND in server.ask("GET", "/stats?format=json").decode():
            raise LoadError("the commands were all applied before the end of the measurement")
    sender.join(10)
    return {
        "quiet": Reading(percentile(quiet, 0.5) / 1e6),
        "p50": Reading(percentile(beside, 0.5) / 1e6),
        "p99": Reading(percentile(beside, 0.99) / 1e6),
        "cpu": Reading(100 * cpu),
        "bytes": Reading(len(packed) / 1000),
    }


def _send(conn: layered.Layered, packed: bytes) -> None:
    # The connection is closed before everything is sent.
    with suppress(OSError):
        conn.send_prepared(packed)


def _waits(server: Server) -> tuple[list[int], float]:
    """Publish every two milliseconds; return how long each publish waited, and the processor share."""
    waits = []
    cpu_s, began = server.cpu_seconds(), time.monotonic()
    request = load.encode_pub("probe#ephemeral", b"?" * 16)
    with closing(load.connect(server.tcp)) as conn:
        while time.monotonic() - began < WATCHED_S:
            asked = time.monotonic_ns()
            conn.sendall(request)
            load.expect_ok(conn)
            waits.append(time.monotonic_ns() - asked)
            time.sleep(EVERY_S)
    return sorted(waits), (server.cpu_seconds() - cpu_s) / (time.monotonic() - began)


def sampled(server: Server, _plan: Plan) -> Readings:
    """Measure the memory that a consumer costs that has RDY for 300 messages of 1 MB and reads none."""
    return {
        name: Reading(_held(server, f"hostile_{name}", wishes))
        for name, wishes in (("plain", {}), ("sampled", {"sample_rate": RATE}))
    }


def _held(server: Server, name: str, wishes: dict[str, object]) -> float:
    topic = create(server, name, ["ch"])
    with closing(load.connect(server.tcp)) as conn:
        for _ in range(BODIES):
            conn.sendall(load.encode_pub(topic, b"x" * BODY))
            load.expect_ok(conn)
    time.sleep(1.0)
    before = server.memory_mib()
    most = before
    with closing(load.connect(server.tcp, **wishes)) as conn:
        load.subscribe(conn, topic, "ch")
        conn.sendall(b"RDY %d\n" % BODIES)
        deadline = time.monotonic() + WATCHED_MEMORY_S
        while time.monotonic() < deadline:
            most = max(most, server.memory_mib())
            time.sleep(0.02)
    delete(server, topic)
    return most - before


ROWS: Final = [
    Row(
        "bomb",
        "a small PUB next to 160 million NOPs under deflate",
        (
            less("quiet", "ms without it, p50"),
            less("p50", "ms, p50", limit=WAIT_MS),
            less("p99", "ms, p99"),
            less("cpu", "% of a processor"),
            less("bytes", "KB that it takes to send"),
        ),
        bomb,
        most_runs=1,
    ),
    Row(
        "sampled",
        "a consumer that reads none of 300 messages of 1 MB",
        (
            less("plain", "MiB more", limit=MEMORY_MIB),
            less("sampled", "MiB more when it samples", limit=MEMORY_MIB),
        ),
        sampled,
        flags=("--mem-queue-size", "10", "--max-msg-size", "2000000"),
        most_runs=1,
    ),
]
