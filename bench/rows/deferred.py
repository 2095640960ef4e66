"""Measures how late deferred messages come, of which 200 each are due at the same moment."""

import time
from array import array
from contextlib import closing
from functools import partial
from multiprocessing.sharedctypes import RawArray
from typing import Any, Final

from bench import load
from bench.load import LoadError, expect_oks
from bench.metrics import Plan, Reading, Readings, Row, less
from bench.paced import DUE_SIZE, dues_of, percentile
from bench.rows.work import PATIENCE, create, delete, scaled
from bench.server import Server
from bench.workers import Work, Worker, start_workers

COUNT: Final = 1_000_000
WITHIN_S: Final = 2.0
SIZE: Final = 200
CHUNK: Final = 200
WINDOW: Final = 8
PUBLISHERS: Final = 2
READERS: Final = 2
# The first message is due after handling all messages at this rate would end.
PER_SECOND: Final = 20_000


def deferred(server: Server, plan: Plan) -> Readings:
    """Publishers take turns with chunks; all messages of a chunk fall due at the same moment."""
    count = scaled(COUNT, plan) // (CHUNK * PUBLISHERS) * CHUNK * PUBLISHERS
    first = time.monotonic_ns() + int((count / PER_SECOND + 1.0) * 1e9)
    chunks = [first + int(WITHIN_S * 1e9) * CHUNK * n // count for n in range(count // CHUNK)]
    parts = [
        array("q", [due for due in chunks[n::PUBLISHERS] for _ in range(CHUNK)]) for n in range(PUBLISHERS)
    ]
    topic = create(server, "deferred", ["ch"])
    late = [RawArray("q", count) for _ in range(READERS)]
    works: list[Work] = [partial(_deferrer, server, topic, dues) for dues in parts]
    works += [partial(_reader, server, topic, first, found) for found in late]
    publishers, readers = range(PUBLISHERS), range(PUBLISHERS, len(works))
    with start_workers(works) as crew:
        crew.begin()
        crew.wait(publishers, 120)
        if time.monotonic_ns() > first:
            raise LoadError("the first message fell due before the last one was published")
        crew.wait_for(count, readers, max(0.0, (first - time.monotonic_ns()) / 1e9) + PATIENCE)
        counts = list(crew.counts)
    delete(server, topic)
    waits = sorted(
        wait for found, seen in zip(late, counts[PUBLISHERS:], strict=True) for wait in found[:seen]
    )
    if waits[0] < 0:
        raise LoadError("a message came before it was due")
    return {
        name: Reading(percentile(waits, share) / 1e6)
        for name, share in (("p50", 0.5), ("p99", 0.99), ("most", 1.0))
    }


# --- the work of one process -------------------------------------------------


def _deferrer(server: Server, topic: str, dues: "array[int]", worker: Worker) -> None:
    head, tail = b"DPUB %b " % topic.encode(), b"x" * (SIZE - DUE_SIZE)
    size = b"\n" + SIZE.to_bytes(4, "big")
    with closing(load.connect(server.tcp)) as conn:
        worker.start()
        waiting = 0
        for at in range(0, len(dues), CHUNK):
            now = time.monotonic_ns()
            # Rounded up to the protocol's whole milliseconds, so that no message may come before it is due.
            conn.sendall(
                b"".join(
                    [
                        b"%b%d%b%b%b"
                        % (head, -((now - due) // 1_000_000), size, due.to_bytes(DUE_SIZE, "big"), tail)
                        for due in dues[at : at + CHUNK]
                    ]
                )
            )
            waiting += CHUNK
            if waiting == WINDOW * CHUNK:
                expect_oks(conn, CHUNK)
                waiting -= CHUNK
        expect_oks(conn, waiting)
    worker.note(len(dues))


def _reader(server: Server, topic: str, first_due: int, found: Any, worker: Worker) -> None:
    worker.start()
    # Connect only shortly before, because a connection that waits longer gets heartbeats.
    time.sleep(max(0.0, (first_due - time.monotonic_ns()) / 1e9 - 1.0))
    count = 0
    with closing(load.connect(server.tcp)) as conn:
        load.subscribe(conn, topic, "ch")

        def look(data: bytearray, end: int) -> None:
            nonlocal count
            now = time.monotonic_ns()
            late = [now - due for due in dues_of(data, end, SIZE)]
            found[count : count + len(late)] = late
            count += len(late)
            worker.note(count)

        for _ in load.consume(conn, SIZE, look):
            if worker.stop_requested():
                return


ROWS: Final = [
    Row(
        "deferred",
        "a million deferred, due within 2 s",
        (less("p50", "ms late, p50"), less("p99", "ms late, p99", limit=50.0), less("most", "ms late, most")),
        deferred,
        most_runs=1,
    ),
]
