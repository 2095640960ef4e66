"""TLS, snappy and deflate: the rows of batches again, with bodies of compressible text."""

import json
import random
from contextlib import closing
from functools import partial
from time import monotonic
from typing import Final

from bench import layered, load
from bench.metrics import Plan, Readings, Row, rate
from bench.rows.work import BATCH, create, delete, emptying, flowing, publishing
from bench.server import Server
from bench.workers import Work, Worker, start_workers

_WORDS: Final = (
    "order",
    "price",
    "user",
    "account",
    "created",
    "region",
    "eu-west",
    "status",
    "paid",
    "open",
)
_BATCHES: Final = 4
# Divides the number of messages, because deflate takes 20 times as long.
FEWER: Final = {"tls": 1, "snappy": 1, "deflate": 4}


def text_bodies(size: int, count: int, seed: int) -> list[bytes]:
    """Return bodies of *size* bytes like JSON events; they compress to about two fifths."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        event: dict[str, object] = {"id": f"{chance.getrandbits(64):016x}"}
        while len(line := json.dumps(event)) < size:
            event[chance.choice(_WORDS) + str(len(event))] = chance.choice(
                [chance.choice(_WORDS), chance.randrange(100_000)]
            )
        found.append(line[:size].encode())
    return found


def _publisher(server: Server, topic: str, plan: Plan, quota: int, layer: str) -> Work:
    def work(worker: Worker) -> None:
        with closing(layered.connect(server.tcp, layer)) as conn:
            batches = [
                conn.prepare(load.encode_mpub(topic, text_bodies(plan.size or 200, BATCH, seed)))
                for seed in range(_BATCHES)
            ]
            worker.start()
            deadline = monotonic() + plan.seconds
            worker.note(load.publish_synchronously(layered.Prepared(conn), batches, BATCH, quota, deadline))

    return work


def _consumer(server: Server, topic: str, plan: Plan, layer: str) -> Work:
    def work(worker: Worker) -> None:
        with closing(layered.connect(server.tcp, layer)) as conn:
            load.subscribe(conn, topic, "ch")
            worker.start()
            total = 0
            for count in load.consume(conn, plan.size or 200):
                if count:
                    total += count
                    worker.note(total)
                elif worker.stop_requested():
                    return

    return work


def mpub(server: Server, plan: Plan, *, layer: str) -> Readings:
    plan = Plan(plan.size or 200, plan.messages // FEWER[layer], plan.seconds)
    return publishing(
        server,
        layer,
        plan,
        lambda topic: [_publisher(server, topic, plan, plan.messages // 2, layer) for _ in range(2)],
    ).readings()


def sub(server: Server, plan: Plan, *, layer: str) -> Readings:
    plan = Plan(plan.size or 200, plan.messages // FEWER[layer], plan.seconds)
    topic = create(server, layer, ["ch"])
    with start_workers([_publisher(server, topic, Plan(plan.size, 0, 600), plan.messages, layer)]) as crew:
        crew.begin()
        crew.wait(range(1), timeout=600)
        filled = crew.total()
    found = emptying(server, topic, [_consumer(server, topic, plan, layer) for _ in range(2)], filled)
    delete(server, topic)
    return found.readings()


def both(server: Server, plan: Plan, *, layer: str) -> Readings:
    plan = Plan(plan.size or 200, plan.messages // FEWER[layer], plan.seconds)
    topic = create(server, layer, ["ch"])
    writers = [_publisher(server, topic, plan, plan.messages // 2, layer) for _ in range(2)]
    readers = [_consumer(server, topic, plan, layer) for _ in range(2)]
    found = flowing(server, topic, writers, readers, plan.seconds)
    delete(server, topic)
    return found.readings()


_WORKS: Final = (
    ("mpub", "MPUB of 200, 2 connections", mpub),
    ("sub", "SUB + FIN from a full queue, 2 readers", sub),
    ("both", "both at the same time, sum", both),
)
_TITLES: Final = {"tls": "TLS", "snappy": "snappy", "deflate": "deflate"}
ROWS: Final = [
    Row(
        f"{layer}_{name}",
        f"{_TITLES[layer]}: {title}",
        (rate(1.0),),
        partial(run, layer=layer),
        flags=layered.tls_flags,
    )
    for layer in layered.LAYERS
    for name, title, run in _WORKS
]
