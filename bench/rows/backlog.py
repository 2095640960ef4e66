"""A long queue on disk: how fast and with how much memory it is emptied, how fast a server starts on it."""

import time
from contextlib import closing
from typing import Final

from bench import load
from bench.load import LoadError
from bench.metrics import Metric, Plan, Reading, Readings, Row, less
from bench.rows.work import consumer, create, emptying, fill, scaled
from bench.server import Program, Server
from nsqclient.wire.message import FRAME_OVERHEAD

DRAINED: Final = 5_000_000
QUEUED: Final = 1_000_000
PATIENCE: Final = 60.0
# Within this time after a start all queued messages must be counted again.
RESTORED_WITHIN_S: Final = 10.0
# The original does not count the few messages that are on their way between two of its queues.
IN_HAND: Final = 5
# The default of both servers, given here because the row measures the messages beyond it, on disk.
FLAGS: Final = ("--mem-queue-size", "10000")


def _unfinished(server: Server, topic: str) -> int:
    stats = server.topic_stats(topic)
    unfinished: int = stats["depth"] + sum(c["depth"] + c["in_flight_count"] for c in stats["channels"])
    return unfinished


def drain(program: Program, plan: Plan) -> Readings:
    """Publish all messages, then let two readers empty the queue; peak memory covers both."""
    plan = Plan(plan.size, scaled(DRAINED, plan), plan.seconds)
    with program.serving(FLAGS) as server:
        topic = create(server, "drain", ["ch"])
        filled = fill(server, topic, plan, plan.messages)
        readers = [consumer(server, topic, "ch", plan) for _ in range(2)]
        found = emptying(server, topic, readers, filled, PATIENCE)
        return found.readings() | {"memory": Reading(server.peak_memory_mib())}


def start(program: Program, plan: Plan) -> Readings:
    """Measure, after a clean stop, the time from the process start to the first answer and first message."""
    plan = Plan(plan.size, scaled(QUEUED, plan), plan.seconds)
    with program.folder() as data:
        with program.serving(FLAGS, data) as server:
            topic = create(server, "start", ["ch"])
            filled = fill(server, topic, plan, plan.messages)
        with program.serving(FLAGS, data) as server:
            began = time.monotonic()
            first_message(server, topic)
            waited = time.monotonic() - began
            # Messages that were still at the topic at the stop reach the channel a moment after the start.
            while (unfinished := _unfinished(server, topic)) < filled - IN_HAND:
                if time.monotonic() - began > RESTORED_WITHIN_S:
                    raise LoadError(f"{filled:,} were queued, {unfinished:,} are after a start")
                time.sleep(0.1)
            return {"ping": Reading(server.started_s), "message": Reading(server.started_s + waited)}


def first_message(server: Server, topic: str) -> None:
    with closing(load.connect(server.tcp)) as conn:
        load.subscribe(conn, topic, "ch")
        conn.settimeout(PATIENCE)
        conn.sendall(b"RDY 1\n")
        if len(conn.recv(FRAME_OVERHEAD)) == 0:
            raise LoadError("the server closed the connection")


ROWS: Final = [
    Row(
        "drain",
        f"drain of {DRAINED // 1_000_000} million from disk, 2 readers",
        (Metric("rate", "msg/s", goal=2.0), less("memory", "MiB at most", goal=0.25)),
        drain,
        own=True,
        most_runs=1,
    ),
    Row(
        "start",
        "start with a million queued",
        (less("ping", "s to /ping", limit=1.0), less("message", "s to the first message")),
        start,
        own=True,
        most_runs=3,
    ),
]
