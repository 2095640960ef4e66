"""The parts that rows share: topics, works on them, and the check of every message afterwards."""

import itertools
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench import load
from bench.load import LoadError
from bench.metrics import Plan, Reading, Readings
from bench.server import Server
from bench.workers import Work, Worker, WorkerGroup, start_workers

BATCH: Final = 200
PATIENCE: Final = 20.0
# The plan's usual number of messages. Rows with another number scale it in proportion to the plan's.
USUAL: Final = 500_000

_topic_numbers = itertools.count()


@dataclass(frozen=True)
class Sample:
    """One run of a row that moves messages: CPU time is divided by *messages*, the rate counts *events*.

    They differ if a message makes two events, its publishing and its consuming.
    """

    messages: int
    events: int
    seconds: float
    server_cpu: float
    load_cpu: float

    def reading(self, scale: float = 1.0) -> Reading:
        """Return events a second times *scale*, with the cost of each message."""
        share = 1e6 / self.messages
        return Reading(self.events / self.seconds * scale, self.server_cpu * share, self.load_cpu * share)

    def readings(self) -> Readings:
        return {"rate": self.reading()}


# --- the work of one process -------------------------------------------------


def publisher(
    server: Server, topic: str, plan: Plan, quota: int, per_batch: int, *, pipelined: bool = False
) -> Work:
    def work(worker: Worker) -> None:
        batches = load.variants(plan.size, per_batch, _encoder(topic, pipelined=pipelined))
        send = load.publish_pipelined if pipelined else load.publish_synchronously
        with closing(load.connect(server.tcp)) as conn:
            worker.start()
            worker.note(send(conn, batches, per_batch, quota, time.monotonic() + plan.seconds))

    return work


def _encoder(topic: str, *, pipelined: bool) -> Callable[[list[bytes]], bytes]:
    if pipelined:
        return lambda messages: b"".join(load.encode_pub(topic, message) for message in messages)
    return partial(load.encode_mpub, topic)


def consumer(server: Server, topic: str, channel: str, plan: Plan) -> Work:
    def work(worker: Worker) -> None:
        with closing(load.connect(server.tcp)) as conn:
            load.subscribe(conn, topic, channel)
            worker.start()
            total = 0
            for count in load.consume(conn, plan.size):
                if count:
                    total += count
                    worker.note(total)
                elif worker.stop_requested():
                    return

    return work


# --- before and after ----------------------------------------------------------


def create(server: Server, row: str, channels: list[str]) -> str:
    topic = f"bench_{row}_{next(_topic_numbers)}"
    server.ask("POST", f"/topic/create?topic={topic}")
    for channel in channels:
        server.ask("POST", f"/channel/create?topic={topic}&channel={channel}")
    return topic


def delete(server: Server, topic: str) -> None:
    server.ask("POST", f"/topic/delete?topic={topic}")


def fill(server: Server, topic: str, plan: Plan, messages: int) -> int:
    """Publish at least *messages* and return how many were published."""
    unhurried = Plan(plan.size, messages, seconds=600.0)
    with start_workers([publisher(server, topic, unhurried, messages, batch_of(plan.size))]) as crew:
        crew.begin()
        crew.wait(range(1), timeout=600.0)
        return crew.total()


def scaled(count: int, plan: Plan) -> int:
    """Return *count* scaled by the plan's number of messages."""
    return count * min(plan.messages, USUAL) // USUAL


def batch_of(size: int | None) -> int:
    """Return how many bodies of *size* make a batch: the same in all rows, fewer if they are long."""
    return BATCH if size is None else max(1, min(BATCH, 64_000 // size))


def drain(server: Server, topic: str, channel: str, plan: Plan, messages: int) -> None:
    with start_workers([consumer(server, topic, channel, plan)]) as crew:
        crew.begin()
        crew.wait_for(messages, range(1), PATIENCE)


def emptying(
    server: Server, topic: str, readers: list[Work], messages: int, patience: float = PATIENCE
) -> Sample:
    """Let *readers* empty a channel with a backlog of *messages*."""
    with start_workers(readers) as crew:
        cpu = server.cpu_seconds()
        crew.begin()
        crew.wait_for(messages, range(len(readers)), patience)
        check_all_finished(server, topic, messages)
        return sample(server, crew, messages, cpu)


def flowing(
    server: Server,
    topic: str,
    publishers: list[Work],
    readers: list[Work],
    seconds: float,
    *,
    deliveries: int = 1,
    events: int = 2,
) -> Sample:
    """Publish and consume at the same time; a message makes *deliveries*, and each of these *events*."""
    works = publishers + readers
    with start_workers(works) as crew:
        cpu = server.cpu_seconds()
        crew.begin()
        crew.wait(range(len(publishers)), seconds + PATIENCE)
        published = crew.total(range(len(publishers)))
        crew.wait_for(published * deliveries, range(len(publishers), len(works)), PATIENCE)
        check_all_finished(server, topic, published)
        delivered = published * deliveries
        return sample(server, crew, delivered, cpu, events=delivered * events)


def check_all_finished(server: Server, topic: str, published: int) -> None:
    """Raise LoadError unless every message was counted and none is pending, so that all work was measured."""
    deadline = time.monotonic() + PATIENCE
    while True:
        stats = server.topic_stats(topic)
        unfinished = [c["depth"] + c["in_flight_count"] + c["deferred_count"] for c in stats["channels"]]
        counted = {stats["message_count"], *(c["message_count"] for c in stats["channels"])}
        if counted == {published} and not any(unfinished) and not stats["depth"]:
            return
        if time.monotonic() > deadline:
            raise LoadError(
                f"{published:,} published to {topic}; counted {sorted(counted)}, still pending {unfinished}"
            )
        time.sleep(0.02)


def sample(server: Server, crew: WorkerGroup, messages: int, cpu_before: float, *, events: int = 0) -> Sample:
    used = server.cpu_seconds() - cpu_before
    crew.dismiss()
    return Sample(messages, events or messages, crew.seconds(), used, crew.cpu_seconds())


def publishing(server: Server, row: str, plan: Plan, works_on: Callable[[str], list[Work]]) -> Sample:
    """Publish to one channel, which is emptied and checked afterwards without being measured."""
    topic = create(server, row, ["ch"])
    works = works_on(topic)
    with start_workers(works) as crew:
        cpu = server.cpu_seconds()
        crew.begin()
        crew.wait(range(len(works)), plan.seconds + PATIENCE)
        found = sample(server, crew, crew.total(), cpu)
    if not server.null:
        drain(server, topic, "ch", plan, found.messages)
        check_all_finished(server, topic, found.messages)
        delete(server, topic)
    return found
