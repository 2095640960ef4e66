"""Measures how late a million deferred messages come that all fall due within two seconds."""

import time
from contextlib import closing
from multiprocessing.sharedctypes import RawArray
from typing import Any, Final

from bench import load
from bench.crew import Work, Worker, crew_of
from bench.figures import Plan, Reading, Readings, Row, less
from bench.load import LoadError, expect_oks
from bench.paced import DUE_SIZE, dues_of, percentile
from bench.rows.work import PATIENCE, create, delete
from bench.server import Server

COUNT: Final = 1_000_000
USUAL: Final = 500_000
DUE_WITHIN_S: Final = 2.0
# Publishers defer this many at once to the same moment, so the messages fall due in 5,000 steps.
CHUNK: Final = 200
WINDOW: Final = 8
PUBLISHERS: Final = 2
READERS: Final = 2
SIZE: Final = 32
# The first message falls due after publishing at this rate would end; an original takes 100,000 a second.
PER_SECOND: Final = 50_000
LIMIT_MS: Final = 50.0


def deferred(server: Server, plan: Plan) -> Readings:
    count = COUNT * min(plan.messages, USUAL) // USUAL // (CHUNK * PUBLISHERS) * CHUNK * PUBLISHERS
    topic = create(server, "deferred", ["ch"])
    first_due = time.monotonic_ns() + int((count / PER_SECOND + 1.0) * 1e9)
    late = [RawArray("q", count) for _ in range(READERS)]
    works = [_publisher(server, topic, first_due, count, number) for number in range(PUBLISHERS)]
    works += [_reader(server, topic, found) for found in late]
    readers = range(PUBLISHERS, len(works))
    with crew_of(works) as crew:
        crew.begin()
        crew.wait(range(PUBLISHERS), 120)
        if time.monotonic_ns() > first_due:
            raise LoadError("the first message fell due before the last one was published")
        crew.wait_for(count, readers, (first_due - time.monotonic_ns()) / 1e9 + PATIENCE)
        counts = list(crew.counts)
    delete(server, topic)
    waits = sorted(
        wait for found, seen in zip(late, counts[PUBLISHERS:], strict=True) for wait in found[:seen]
    )
    early = sum(wait < 0 for wait in waits)
    if early:
        raise LoadError(f"{early} deferred messages came before they were due")
    return {name: Reading(percentile(waits, share) / 1e6) for name, share in (("p50", 0.5), ("p99", 0.99))}


def _publisher(server: Server, topic: str, first_due: int, count: int, number: int) -> Work:
    """Return work that publishes every second chunk; chunks fall due evenly over two seconds."""

    def work(worker: Worker) -> None:
        step = int(DUE_WITHIN_S * 1e9) * CHUNK // count
        dues = range(first_due + number * step, first_due + int(DUE_WITHIN_S * 1e9), step * PUBLISHERS)
        with closing(load.connect(server.tcp)) as conn:
            worker.start()
            waiting = 0
            for due in dues:
                conn.sendall(_chunk(topic, due))
                waiting += CHUNK
                if waiting == WINDOW * CHUNK:
                    expect_oks(conn, CHUNK)
                    waiting -= CHUNK
            expect_oks(conn, waiting)
        worker.note(len(dues) * CHUNK)

    return work


def _chunk(topic: str, due: int) -> bytes:
    # Rounded up to the protocol's whole milliseconds, so that no message may come before it is due.
    delay_ms = -((time.monotonic_ns() - due) // 1_000_000)
    body = due.to_bytes(DUE_SIZE, "big") + b"x" * (SIZE - DUE_SIZE)
    return b"DPUB %b %d\n%b%b" % (topic.encode(), delay_ms, SIZE.to_bytes(4, "big"), body) * CHUNK


def _reader(server: Server, topic: str, found: Any) -> Work:
    def work(worker: Worker) -> None:
        with closing(load.connect(server.tcp)) as conn:
            load.subscribe(conn, topic, "ch")
            worker.start()
            seen = 0

            def look(data: bytearray, end: int) -> None:
                nonlocal seen
                now = time.monotonic_ns()
                waits = [now - due for due in dues_of(data, end, SIZE)]
                found[seen : seen + len(waits)] = waits
                seen += len(waits)

            for count in load.consume(conn, SIZE, look):
                if count:
                    worker.note(seen)
                elif worker.told_to_stop():
                    return

    return work


ROWS: Final = [
    Row(
        "deferred",
        "a million deferred, due within 2 s",
        (less("p50", "ms late, p50"), less("p99", "ms late, p99", limit=LIMIT_MS)),
        deferred,
        most_runs=1,
    )
]
