"""Latency at a fixed rate, from the moment when a message was due to its consumer and to its OK.

The consumer asks for the output buffer that suits an original best at each rate. At 5,000/s it asks for none,
because in a buffer messages wait for a timer of at least 25 ms. At 50,000/s it asks for one, because without
it each message takes several system calls, and the original would fall behind.
"""

import time
from array import array
from contextlib import closing
from functools import partial
from multiprocessing.sharedctypes import RawArray
from typing import Any, Final

from bench import load
from bench.metrics import Plan, Reading, Readings, Row, less
from bench.paced import DUE_SIZE, Pacer, dues_of, percentile
from bench.rows.work import create, delete
from bench.server import Server
from bench.workers import Work, Worker, start_workers

CONNECTIONS: Final = 4
WISHES: Final = {5_000: {"output_buffer_size": -1}, 50_000: {"output_buffer_timeout": 25}}
# The share of first messages that is not measured, because caches are cold and buffers not yet allocated.
WARM_UP: Final = 0.1
# A run ends this long after the last message was due; a server that is further behind gets lower bounds.
BEHIND_S: Final = 3.0
SHARES: Final = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
# An original syncs only messages that it writes, so it must write every message.
STRICT: Final = ("--sync-every", "1", "--mem-queue-size", "0")


def at_rate(server: Server, plan: Plan, *, rate: int, wishes: dict[str, int]) -> Readings:
    size = plan.size or 200
    total = int(min(plan.messages, rate * plan.seconds * 2))
    period_ns = 1_000_000_000 // rate
    topic = create(server, f"latency{rate}", ["ch"])
    # In ns, in order of arrival; the workers write, this process reads when they have ended.
    delivered, answered = RawArray("q", total), RawArray("q", total)
    # When the first message is due.
    start = RawArray("q", 1)
    lasts_s = total / rate + BEHIND_S
    works = [
        _publisher(server, topic, total, period_ns, size, answered, start, lasts_s),
        _consumer(server, topic, size, delivered, wishes),
    ]
    with start_workers(works) as crew:
        start[0] = time.monotonic_ns() + 10_000_000
        crew.begin()
        deadline = time.monotonic() + lasts_s
        while min(crew.counts) < total and time.monotonic() < deadline:
            crew.total()  # raises if a worker has failed
            time.sleep(0.01)
        crew.dismiss()
        counts = list(crew.counts)
    delete(server, topic)
    end = time.monotonic_ns()
    for found, count in zip((answered, delivered), counts, strict=True):
        # Messages come in order; those that have not come have waited until now, which is a lower bound.
        found[count:] = [end - start[0] - number * period_ns for number in range(count, total)]
    return _percentiles("", delivered, total) | _percentiles("ok ", answered, total)


def _percentiles(prefix: str, nanoseconds: Any, total: int) -> Readings:
    values = sorted(nanoseconds[int(total * WARM_UP) :])
    return {prefix + name: Reading(percentile(values, share) / 1e6) for name, share in SHARES}


def _publisher(
    server: Server,
    topic: str,
    total: int,
    period_ns: int,
    size: int,
    found: Any,
    start: Any,
    lasts_s: float,
) -> Work:
    def work(worker: Worker) -> None:
        conns = [load.connect(server.tcp) for _ in range(CONNECTIONS)]
        command = load.encode_pub(topic, b"x" * size)
        head, tail = command[: len(command) - size], command[len(command) - size + DUE_SIZE :]
        waits = array("q")
        worker.start()
        give_up = start[0] + int(lasts_s * 1e9)
        Pacer(conns, head, tail, period_ns).run(start[0], total, give_up, waits.append)
        found[: len(waits)] = waits.tolist()
        worker.note(len(waits))

    return work


def _consumer(server: Server, topic: str, size: int, found: Any, wishes: dict[str, int]) -> Work:
    def work(worker: Worker) -> None:
        with closing(load.connect(server.tcp, **wishes)) as conn:
            load.subscribe(conn, topic, "ch")
            worker.start()
            seen = 0

            def look(data: bytearray, end: int) -> None:
                nonlocal seen
                now = time.monotonic_ns()
                for due in dues_of(data, end, size):
                    found[seen] = now - due
                    seen += 1

            for _ in load.consume(conn, size, look):
                worker.note(seen)
                if worker.stop_requested():
                    return

    return work


def _row(rate: int, name: str, flags: tuple[str, ...]) -> Row:
    metrics = tuple(
        less(prefix + share, f"ms, {share} {until}", goal=1.0)
        for prefix, until in (("", "to the consumer"), ("ok ", "to the OK"))
        for share, _ in SHARES
    )
    title = f"latency at {rate:,}/s, {name}"
    return Row(
        f"latency{rate // 1000}k_{name}",
        title,
        metrics,
        partial(at_rate, rate=rate, wishes=WISHES[rate]),
        flags,
        most_runs=2,
    )


ROWS: Final = [
    _row(rate, name, flags) for name, flags in (("default", ()), ("strict", STRICT)) for rate in WISHES
]
