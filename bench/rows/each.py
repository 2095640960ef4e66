"""Measures how late messages come that come back: 200 at the same moment, or each at a different one.

They are deferred with different due times, requeued with different delays, or not answered in time. On disk,
messages that come back one after the other are far apart.
"""

import random
import time
from array import array
from collections.abc import Iterator
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
from nsqclient.wire.message import FRAME_OVERHEAD, MESSAGE_ID_BYTES

COUNT: Final = 200_000
WITHIN_S: Final = 2.0
MANY: Final = 1_000_000
MANY_WITHIN_S: Final = 10.0
SIZE: Final = 200
CHUNK: Final = 200
WINDOW: Final = 8
PUBLISHERS: Final = 2
READERS: Final = 2
# The first message is due after handling all messages at this rate would end.
PER_SECOND: Final = 20_000
TIMEOUT_S: Final = 5.0
# Messages that should time out over some seconds are taken in steps of this length.
STEP_MS: Final = 10
LIMIT_MS: Final = 100.0
MANY_LIMIT_MS: Final = 250.0
# Most of the messages are not in memory, and one consumer may have all of them in flight.
FLAGS: Final = ("--mem-queue-size", "10000", "--max-rdy-count", "1000000", "--max-req-timeout", "1h")
_STRIDE: Final = FRAME_OVERHEAD + SIZE
_ID: Final = FRAME_OVERHEAD - MESSAGE_ID_BYTES
# Offset of the lower byte of the attempts.
_ATTEMPTS: Final = _ID - 1


def deferred(server: Server, plan: Plan) -> Readings:
    """Publishers take turns with chunks; all messages of a chunk fall due at the same moment."""
    count = scaled(MANY, plan) // (CHUNK * PUBLISHERS) * CHUNK * PUBLISHERS
    chunks = [_first_due(count) + int(WITHIN_S * 1e9) * CHUNK * n // count for n in range(count // CHUNK)]
    parts = [
        array("q", [due for due in chunks[n::PUBLISHERS] for _ in range(CHUNK)]) for n in range(PUBLISHERS)
    ]
    return _deferred(server, "deferred", parts)


def deferred_each(server: Server, plan: Plan, count: int, within_s: float) -> Readings:
    count = scaled(count, plan) // (CHUNK * PUBLISHERS) * CHUNK * PUBLISHERS
    dues = _moments(count, within_s)
    return _deferred(server, "deferred_each", [dues[number::PUBLISHERS] for number in range(PUBLISHERS)])


def _deferred(server: Server, row: str, parts: "list[array[int]]") -> Readings:
    """Let each publisher defer messages to the moments of its part; the first of all is in the first part."""
    topic = create(server, row, ["ch"])
    count, first = sum(map(len, parts)), parts[0][0]
    late = [RawArray("q", count) for _ in range(READERS)]
    works = [partial(_deferrer, server, topic, dues) for dues in parts]
    works += [partial(_reader, server, topic, first, found) for found in late]
    return _run(server, topic, works, late, count, range(PUBLISHERS), first)


def requeued_each(server: Server, plan: Plan) -> Readings:
    count = scaled(COUNT, plan) // CHUNK * CHUNK
    topic = _filled(server, "requeued_each", count)
    dues = _moments(count, WITHIN_S)
    late = [RawArray("q", count) for _ in range(READERS)]
    works = [partial(_requeuer, server, topic, dues, found) for found in late]
    return _run(server, topic, works, late, count, range(0), dues[0])


def timed_out(server: Server, plan: Plan, row: str, within_s: float) -> Readings:
    count = scaled(COUNT, plan) // CHUNK * CHUNK
    topic = _filled(server, row, count)
    seen = RawArray("q", count)
    late = [RawArray("q", count) for _ in range(READERS)]
    works = [partial(_silent, server, topic, seen, count // READERS, within_s, found) for found in late]
    return _run(server, topic, works, late, count, range(0), time.monotonic_ns())


def _moments(count: int, within_s: float) -> "array[int]":
    """Return when each message is due; the first is the earliest."""
    first = _first_due(count)
    chance = random.Random(1)
    return array("q", [first, *(first + int(chance.random() * within_s * 1e9) for _ in range(count - 1))])


def _first_due(count: int) -> int:
    return time.monotonic_ns() + int((count / PER_SECOND + 1.0) * 1e9)


def _filled(server: Server, row: str, count: int) -> str:
    """Create a topic with *count* messages, each with its number in its body; return its name."""
    topic = create(server, row, ["ch"])
    with closing(load.connect(server.tcp)) as conn:
        for first in range(0, count, CHUNK):
            conn.sendall(load.encode_mpub(topic, [_body(n) for n in range(first, first + CHUNK)]))
            load.expect_ok(conn)
    return topic


def _body(number: int) -> bytes:
    return number.to_bytes(DUE_SIZE, "big") + b"x" * (SIZE - DUE_SIZE)


def _run(
    server: Server, topic: str, works: list[Work], late: list[Any], count: int, first: range, due: int
) -> Readings:
    """Run the works: the *first* must end before the first message is *due*; the others note lateness."""
    readers = range(len(first), len(works))
    with start_workers(works) as crew:
        crew.begin()
        crew.wait(first, 120)
        if first and time.monotonic_ns() > due:
            raise LoadError("the first message fell due before the last one was published")
        crew.wait_for(count, readers, max(0.0, (due - time.monotonic_ns()) / 1e9) + PATIENCE)
        counts = list(crew.counts)
    delete(server, topic)
    waits = sorted(
        wait for found, seen in zip(late, counts[len(first) :], strict=True) for wait in found[:seen]
    )
    if first and waits[0] < 0:
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
    late = _Late(worker, found)
    with closing(load.connect(server.tcp)) as conn:
        load.subscribe(conn, topic, "ch")

        def look(data: bytearray, end: int) -> None:
            now = time.monotonic_ns()
            late.add([now - due for due in dues_of(data, end, SIZE)])

        for _ in load.consume(conn, SIZE, look):
            if worker.stop_requested():
                return


def _requeuer(server: Server, topic: str, dues: "array[int]", found: Any, worker: Worker) -> None:
    late = _Late(worker, found)
    with closing(load.connect(server.tcp)) as conn:
        load.subscribe(conn, topic, "ch")
        worker.start()
        for data in _arrivals(conn, worker, load.READY_COUNT):
            now = time.monotonic_ns()
            answers, waits = [], []
            for message_id, attempts, number in _parts(data):
                if attempts == 1:
                    delay_ms = -((now - dues[number]) // 1_000_000)
                    answers.append(b"REQ %b %d\n" % (message_id, max(1, delay_ms)))
                else:
                    answers.append(b"FIN %b\n" % message_id)
                    waits.append(now - dues[number])
            conn.sendall(b"".join(answers))
            late.add(waits)


def _silent(
    server: Server, topic: str, seen: Any, share: int, within_s: float, found: Any, worker: Worker
) -> None:
    """Take *share* messages within *within_s* without an answer, and finish them when they come again."""
    late = _Late(worker, found)
    timeout_ns = int(TIMEOUT_S * 1e9)

    def look(data: bytearray, end: int) -> None:
        now = time.monotonic_ns()
        if data[_ATTEMPTS:end:_STRIDE].count(1):
            raise LoadError("a message came for the first time behind one that came again")
        late.add([now - seen[number] - timeout_ns for number in dues_of(data, end, SIZE)])

    with closing(load.connect(server.tcp, msg_timeout=timeout_ns // 1_000_000)) as conn:
        load.subscribe(conn, topic, "ch")
        worker.start()
        _note_first(conn, worker, seen, share, within_s)
        for _ in load.consume(conn, SIZE, look, ready=share):
            if worker.stop_requested():
                return


def _note_first(conn: Any, worker: Worker, seen: Any, share: int, within_s: float) -> None:
    """Note in *seen* when each message came for the first time."""
    steps = max(1, int(within_s * 1000 / STEP_MS))
    began = time.monotonic()
    for step in range(1, steps + 1):
        wanted = share * step // steps
        got = share * (step - 1) // steps
        for data in _arrivals(conn, worker, wanted):
            now = time.monotonic_ns()
            numbers = dues_of(data, len(data), SIZE)
            for number in numbers:
                seen[number] = now
            got += len(numbers)
            if got == wanted:
                break
        time.sleep(max(0.0, began + step * STEP_MS / 1000 - time.monotonic()) if within_s else 0.0)


class _Late:
    """Stores how late messages came, and tells the worker their number."""

    def __init__(self, worker: Worker, found: Any) -> None:
        self._worker = worker
        self._found = found
        self._count = 0

    def add(self, waits: list[int]) -> None:
        self._found[self._count : self._count + len(waits)] = waits
        self._count += len(waits)
        self._worker.note(self._count)


def _arrivals(conn: Any, worker: Worker, ready: int) -> Iterator[bytes]:
    """Yield whole messages with bodies of SIZE as they come, until the worker gets a stop request."""
    conn.settimeout(load.IDLE_SECONDS)
    conn.sendall(b"RDY %d\n" % ready)
    rest = b""
    while not worker.stop_requested():
        try:
            received = conn.recv(load.READ_SIZE)
        except TimeoutError:
            continue
        if not received:
            raise LoadError("the server closed the connection")
        rest += received
        end = len(rest) // _STRIDE * _STRIDE
        conn.settimeout(None)
        yield rest[:end]
        conn.settimeout(load.IDLE_SECONDS)
        rest = rest[end:]


def _parts(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the id, the attempts and the number of each message."""
    for at in range(0, len(data), _STRIDE):
        number = int.from_bytes(data[at + FRAME_OVERHEAD : at + FRAME_OVERHEAD + DUE_SIZE], "big")
        yield data[at + _ID : at + FRAME_OVERHEAD], data[at + _ATTEMPTS], number


def _figures(limit: float) -> tuple[Any, ...]:
    return (
        less("p50", "ms late, p50"),
        less("p99", "ms late, p99", limit=limit),
        less("most", "ms late, most"),
    )


ROWS: Final = [
    Row("deferred", "a million deferred, due within 2 s", _figures(50.0), deferred, most_runs=1),
    Row(
        "deferred_each",
        "200,000 deferred one by one, due within 2 s",
        _figures(LIMIT_MS),
        partial(deferred_each, count=COUNT, within_s=WITHIN_S),
        flags=FLAGS,
        most_runs=1,
    ),
    Row(
        "requeued_each",
        "200,000 requeued one by one, due within 2 s",
        _figures(LIMIT_MS),
        requeued_each,
        flags=FLAGS,
        most_runs=1,
    ),
    Row(
        "timed_out",
        "200,000 that time out within 2 s",
        _figures(LIMIT_MS),
        partial(timed_out, row="timed_out", within_s=WITHIN_S),
        flags=FLAGS,
        most_runs=1,
    ),
    Row(
        "timed_out_at_once",
        "200,000 that time out as fast as they were delivered",
        _figures(LIMIT_MS),
        partial(timed_out, row="timed_out_at_once", within_s=0.0),
        flags=FLAGS,
        most_runs=1,
    ),
    Row(
        "deferred_each_many",
        "a million deferred one by one, due within 10 s",
        _figures(MANY_LIMIT_MS),
        partial(deferred_each, count=MANY, within_s=MANY_WITHIN_S),
        flags=FLAGS,
        most_runs=1,
    ),
]
