"""The rows of the benchmark: each puts one kind of work on a server and counts what came out of it."""

import itertools
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench import load
from bench.crew import Crew, Work, Worker, crew_of
from bench.load import LoadError
from bench.server import Server

BATCH: Final = 200
PIPELINE_CHUNK: Final = 100
HTTP_CONNECTIONS: Final = 8
PATIENCE: Final = 20.0

_topic_numbers = itertools.count()


@dataclass(frozen=True)
class Plan:
    """How much of everything: *size* None means mixed sizes."""

    size: int | None
    messages: int
    seconds: float


@dataclass(frozen=True)
class Sample:
    """One run of one row: CPU in seconds is shared out among *messages*, the rate counts *events*.

    They differ where one message makes two events, being published and being consumed.
    """

    messages: int
    events: int
    seconds: float
    server_cpu: float
    load_cpu: float

    @property
    def rate(self) -> float:
        return self.events / self.seconds

    @property
    def server_us(self) -> float:
        return self.server_cpu * 1e6 / self.messages

    @property
    def load_us(self) -> float:
        return self.load_cpu * 1e6 / self.messages


# --- what one process does ---------------------------------------------------


def _publisher(
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


def _http_publisher(server: Server, topic: str, plan: Plan, quota: int) -> Work:
    def work(worker: Worker) -> None:
        requests = [load.encode_http_pub(topic, m) for m in load.bodies(plan.size, 64)]
        worker.start()
        deadline = time.monotonic() + plan.seconds
        worker.note(load.publish_http(server.http, HTTP_CONNECTIONS, requests, quota, deadline))

    return work


def _consumer(server: Server, topic: str, channel: str, plan: Plan) -> Work:
    def work(worker: Worker) -> None:
        with closing(load.connect(server.tcp)) as conn:
            load.subscribe(conn, topic, channel)
            worker.start()
            total = 0
            for count in load.consume(conn, plan.size):
                if count:
                    total += count
                    worker.note(total)
                elif worker.told_to_stop():
                    return

    return work


# --- before and after ----------------------------------------------------------


def _create(server: Server, row: str, channels: list[str]) -> str:
    topic = f"bench_{row}_{next(_topic_numbers)}"
    server.ask("POST", f"/topic/create?topic={topic}")
    for channel in channels:
        server.ask("POST", f"/channel/create?topic={topic}&channel={channel}")
    return topic


def _fill(server: Server, topic: str, plan: Plan) -> None:
    unhurried = Plan(plan.size, plan.messages, seconds=600.0)
    with crew_of([_publisher(server, topic, unhurried, plan.messages, BATCH)]) as crew:
        crew.begin()
        crew.wait(range(1), timeout=600.0)


def _drain(server: Server, topic: str, channel: str, plan: Plan, messages: int) -> None:
    with crew_of([_consumer(server, topic, channel, plan)]) as crew:
        crew.begin()
        crew.wait_for(messages, range(1), PATIENCE)


def _check_all_finished(server: Server, topic: str, published: int) -> None:
    """Every message counted, none left over, none owed: what was measured was the whole work."""
    deadline = time.monotonic() + PATIENCE
    while True:
        stats = server.topic_stats(topic)
        owed = [c["depth"] + c["in_flight_count"] + c["deferred_count"] for c in stats["channels"]]
        counted = {stats["message_count"], *(c["message_count"] for c in stats["channels"])}
        if counted == {published} and not any(owed) and not stats["depth"]:
            return
        if time.monotonic() > deadline:
            raise LoadError(
                f"{published:,} published to {topic}; counted {sorted(counted)}, still owed {owed}"
            )
        time.sleep(0.02)


def _sample(server: Server, crew: Crew, messages: int, cpu_before: float, *, events: int = 0) -> Sample:
    used = server.cpu_seconds() - cpu_before
    crew.dismiss()
    return Sample(messages, events or messages, crew.seconds(), used, crew.cpu_seconds())


# --- the rows ------------------------------------------------------------------


def _publishing(server: Server, row: str, plan: Plan, publisher: Callable[[str], list[Work]]) -> Sample:
    topic = _create(server, row, ["ch"])
    works = publisher(topic)
    with crew_of(works) as crew:
        cpu = server.cpu_seconds()
        crew.begin()
        crew.wait(range(len(works)), plan.seconds + PATIENCE)
        sample = _sample(server, crew, crew.total(), cpu)
    _drain(server, topic, "ch", plan, sample.messages)
    _check_all_finished(server, topic, sample.messages)
    server.ask("POST", f"/topic/delete?topic={topic}")
    return sample


def mpub(server: Server, plan: Plan) -> Sample:
    share = plan.messages // 2
    return _publishing(
        server, "mpub", plan, lambda topic: [_publisher(server, topic, plan, share, BATCH) for _ in range(2)]
    )


def mpub_of_one(server: Server, plan: Plan) -> Sample:
    share = plan.messages // 2
    return _publishing(
        server, "mpub1", plan, lambda topic: [_publisher(server, topic, plan, share, 1) for _ in range(2)]
    )


def pub_pipelined(server: Server, plan: Plan) -> Sample:
    quota = plan.messages
    return _publishing(
        server,
        "pub",
        plan,
        lambda topic: [_publisher(server, topic, plan, quota, PIPELINE_CHUNK, pipelined=True)],
    )


def http_pub(server: Server, plan: Plan) -> Sample:
    share = plan.messages // 2
    return _publishing(
        server, "http", plan, lambda topic: [_http_publisher(server, topic, plan, share) for _ in range(2)]
    )


def sub(server: Server, plan: Plan) -> Sample:
    topic = _create(server, "sub", ["ch"])
    _fill(server, topic, plan)
    filled = int(server.topic_stats(topic)["message_count"])
    readers = [_consumer(server, topic, "ch", plan) for _ in range(2)]
    with crew_of(readers) as crew:
        cpu = server.cpu_seconds()
        crew.begin()
        crew.wait_for(filled, range(2), PATIENCE)
        _check_all_finished(server, topic, filled)
        sample = _sample(server, crew, filled, cpu)
    server.ask("POST", f"/topic/delete?topic={topic}")
    return sample


def both(server: Server, plan: Plan) -> Sample:
    """Publishing and consuming at once; the rate is the sum, as the two happen to the same messages."""
    return _through(server, "both", plan, ["ch", "ch"], publishers=2, deliveries=1, events=2)


def fan_out(server: Server, plan: Plan) -> Sample:
    """One topic, four channels with a reader each; rate and CPU are per delivery."""
    fewer = Plan(plan.size, plan.messages // 2, plan.seconds)
    return _through(server, "fanout", fewer, ["a", "b", "c", "d"], publishers=1, deliveries=4, events=1)


def _through(
    server: Server,
    row: str,
    plan: Plan,
    channels: list[str],
    *,
    publishers: int,
    deliveries: int,
    events: int,
) -> Sample:
    """Publish and consume at the same time; a message makes *deliveries*, and each of these *events*."""
    topic = _create(server, row, channels)
    share = plan.messages // publishers
    works = [_publisher(server, topic, plan, share, BATCH) for _ in range(publishers)]
    works += [_consumer(server, topic, channel, plan) for channel in channels]
    readers = range(publishers, len(works))
    with crew_of(works) as crew:
        cpu = server.cpu_seconds()
        crew.begin()
        crew.wait(range(publishers), plan.seconds + PATIENCE)
        published = crew.total(range(publishers))
        crew.wait_for(published * deliveries, readers, PATIENCE)
        _check_all_finished(server, topic, published)
        delivered = published * deliveries
        sample = _sample(server, crew, delivered, cpu, events=delivered * events)
    server.ask("POST", f"/topic/delete?topic={topic}")
    return sample


ROWS: Final[dict[str, tuple[str, Callable[[Server, Plan], Sample]]]] = {
    "mpub": ("MPUB of 200, 2 connections", mpub),
    "mpub1": ("MPUB of 1, synchronous, 2 connections", mpub_of_one),
    "pub": ("PUB pipelined, 1 connection", pub_pipelined),
    "sub": ("SUB + FIN from a full queue, 2 readers", sub),
    "both": ("both at once, sum of published and consumed", both),
    "fanout": ("1 topic to 4 channels, 4 readers, deliveries", fan_out),
    "http": ("HTTP /pub, 16 keep-alive connections", http_pub),
}
