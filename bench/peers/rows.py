"""The rows: the work a broker does and the figures read from it; every message is accounted for."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import Final

from bench.crew import Crew, Work, crew_of
from bench.figures import Plan
from bench.load import LoadError
from bench.paced import percentile
from bench.peers import works
from bench.peers.brokers import Broker
from bench.peers.process import Running, flushes
from bench.peers.speech import Order, shuffled

PUBLISHERS: Final = 2
READERS: Final = 2
CONNECTIONS: Final = 64
RATE: Final = 5_000
PATIENCE: Final = 20.0
# A run ends this long after the last message was due; messages that have not come count with their age.
BEHIND_S: Final = 3.0
MOST_BYTES: Final = 300_000_000
SHARES: Final = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))

# Name of a figure -> its value.
Figures = dict[str, float]

_numbers = itertools.count()


@dataclass
class Target:
    """A running broker and the folder of its files."""

    broker: Broker
    running: Running
    folder: Path

    @contextmanager
    def queue(self) -> Iterator[str]:
        name = f"bench{next(_numbers)}"
        self.broker.speech.create(self.running.address, name)
        try:
            yield name
        finally:
            # Also after a failure, because a backlog would slow the following rows.
            self.broker.speech.delete(self.running.address, name)


class Used:
    """The resources that the broker used from the start to the end of a work."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._cpu, self._flushes = target.running.cpu_seconds(), flushes(target.folder)

    def read(self, crew: Crew, messages: int, events: int | None = None) -> Figures:
        cpu, after = self._target.running.cpu_seconds() - self._cpu, flushes(self._target.folder)
        crew.dismiss()
        if not messages:
            raise LoadError("no message was counted")
        found = {
            "rate": (events or messages) / crew.seconds(),
            "server us": cpu * 1e6 / messages,
            "load us": crew.cpu_seconds() * 1e6 / messages,
        }
        if self._flushes is not None and after is not None:
            found["flushes"] = (after - self._flushes) / messages
        return found


def closed(target: Target, plan: Plan, conns: int) -> dict[str, Figures]:
    """Publish one message at a time on each connection and wait for each answer."""
    speech, address = target.broker.speech, target.running.address
    with target.queue() as queue:
        loads = min(conns, PUBLISHERS)
        todo = [
            works.closed_loop(speech, address, queue, plan.size, conns // loads, plan.seconds)
            for _ in range(loads)
        ]
        with crew_of(todo) as crew:
            used = Used(target)
            crew.begin()
            crew.wait(range(loads), plan.seconds + PATIENCE)
            published = crew.total()
            found = used.read(crew, published)
        check_owed(target, queue, published)
    return {"one" if conns == 1 else "many": found}


def quota_of(plan: Plan) -> int:
    return min(plan.messages, MOST_BYTES // (plan.size or works.MIXED[1]))


def publishers(target: Target, queue: str, plan: Plan, count: int) -> list[Work]:
    speech, address = target.broker.speech, target.running.address
    quota = quota_of(plan) // count
    return [works.pipelined(speech, address, queue, plan.size, quota, plan.seconds) for _ in range(count)]


def readers(target: Target, queue: str, plan: Plan, count: int, order: Order | None = None) -> list[Work]:
    speech, address = target.broker.speech, target.running.address
    return [works.reader(speech, address, queue, plan.size, order) for _ in range(count)]


def batches(
    target: Target, plan: Plan, consumed: str = "consume", order: Order | None = None
) -> dict[str, Figures]:
    """Publish as fast as possible, then consume the backlog."""
    with target.queue() as queue:
        with crew_of(publishers(target, queue, plan, PUBLISHERS)) as crew:
            used = Used(target)
            crew.begin()
            crew.wait(range(PUBLISHERS), plan.seconds + PATIENCE)
            published = crew.total()
            into = used.read(crew, published)
        check_owed(target, queue, published)
        with crew_of(readers(target, queue, plan, READERS, order)) as crew:
            used = Used(target)
            crew.begin()
            crew.wait_for(published, range(READERS), PATIENCE)
            check_owed(target, queue, 0)
            if crew.total() != published:
                raise LoadError(f"{published:,} published, {crew.total():,} consumed")
            out = used.read(crew, published)
    return {"batches": into, consumed: out} if order is None else {consumed: out}


def both(target: Target, plan: Plan) -> dict[str, Figures]:
    """Publish and consume at the same time; each message counts as two events."""
    with (
        target.queue() as queue,
        crew_of(publishers(target, queue, plan, 1) + readers(target, queue, plan, 1)) as crew,
    ):
        used = Used(target)
        crew.begin()
        crew.wait(range(1), plan.seconds + PATIENCE)
        published = crew.total(range(1))
        crew.wait_for(published, range(1, 2), PATIENCE)
        check_owed(target, queue, 0)
        return {"both": used.read(crew, published, 2 * published)}


def check_owed(target: Target, queue: str, expected: int) -> None:
    """Raise LoadError unless the queue soon owes *expected* messages; its counters may lag a moment."""
    deadline = time.monotonic() + PATIENCE
    while (owed := target.broker.speech.owed(target.running.address, queue)) != expected:
        if time.monotonic() > deadline:
            raise LoadError(f"{target.broker.name}: {owed:,} messages wait, {expected:,} were expected")
        time.sleep(0.05)


def latency(target: Target, plan: Plan) -> dict[str, Figures]:
    """Measure, at a fixed rate, the time from a message's due moment to its answer and to its consumer."""
    speech, address, size = target.broker.speech, target.running.address, plan.size or 200
    total = int(RATE * plan.seconds * 3)
    period = 1_000_000_000 // RATE
    answered, delivered, start = RawArray("q", total), RawArray("q", total), RawArray("q", 1)
    lasts_s = total / RATE + BEHIND_S
    with target.queue() as queue:
        todo = [
            works.paced(speech, address, queue, size, period, answered, start, lasts_s),
            works.punctual(speech, address, queue, size, delivered),
        ]
        with crew_of(todo) as crew:
            used = Used(target)
            start[0] = time.monotonic_ns() + 20_000_000
            crew.begin()
            deadline = time.monotonic() + lasts_s
            while min(crew.counts) < total and time.monotonic() < deadline:
                crew.total()
                time.sleep(0.01)
            figures = used.read(crew, total)
            counts = list(crew.counts)
    end = time.monotonic_ns()
    del figures["rate"]
    for name, found, count in zip(("answer", "consumer"), (answered, delivered), counts, strict=True):
        ages = [end - start[0] - number * period for number in range(count, total)]
        waits = sorted([*found[:count], *ages])
        figures |= {f"{name} {share}": percentile(waits, part) / 1e6 for share, part in SHARES}
    return {"latency": figures}


@dataclass(frozen=True)
class PeerRow:
    title: str
    run: Callable[[Target, Plan], dict[str, Figures]] | None = None


ROWS: Final = {
    "one": PeerRow("publish one at a time, 1 connection", partial(closed, conns=1)),
    "many": PeerRow(f"publish one at a time, {CONNECTIONS} connections", partial(closed, conns=CONNECTIONS)),
    "batches": PeerRow("publish in batches or pipelined, 2 connections", batches),
    # Measured together with the row before it.
    "consume": PeerRow("consume with acknowledgement from a backlog, 2 readers"),
    "shuffled": PeerRow(
        "consume, acknowledged one by one in random order, 2 readers",
        partial(batches, consumed="shuffled", order=shuffled),
    ),
    "both": PeerRow("both at once, published and consumed", both),
    "latency": PeerRow(f"latency at {RATE:,}/s", latency),
}
