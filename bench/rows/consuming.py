"""Consuming: from a full queue, while others publish, and on several channels."""

from typing import Final

from bench.metrics import Metric, Plan, Reading, Readings, Row, less, rate
from bench.rows.work import (
    BATCH,
    PATIENCE,
    Sample,
    batch_of,
    check_all_finished,
    consumer,
    create,
    delete,
    emptying,
    fill,
    flowing,
    publisher,
)
from bench.server import Server
from bench.workers import start_workers


def sub(server: Server, plan: Plan) -> Readings:
    topic = create(server, "sub", ["ch"])
    filled = fill(server, topic, plan, plan.messages)
    readers = [consumer(server, topic, "ch", plan) for _ in range(2)]
    found = emptying(server, topic, readers, filled)
    delete(server, topic)
    return found.readings()


def both(server: Server, plan: Plan) -> Readings:
    """Publish and consume the same messages concurrently; the rate is the sum of both."""
    found = through(server, "both", plan, ["ch", "ch"], publishers=2, deliveries=1, events=2)
    reading = found.reading()
    return {"rate": reading, "cpu": Reading(reading.server_us or 0.0)}


# The messages that wait before the readers begin, as a multiple of a run's messages.
_OUTLASTS: Final = 6


def balance(server: Server, plan: Plan) -> Readings:
    """Return the writers' rate as a share of the readers', with two of each at a queue that never empties."""
    topic = create(server, "balance", ["ch"])
    filled = fill(server, topic, plan, plan.messages * _OUTLASTS)
    briefly = Plan(plan.size, plan.messages, plan.seconds / 6)
    works = [publisher(server, topic, briefly, plan.messages, BATCH) for _ in range(2)]
    works += [consumer(server, topic, "ch", plan) for _ in range(2)]
    with start_workers(works) as crew:
        crew.begin()
        crew.wait(range(2), plan.seconds + PATIENCE)
        published, consumed = crew.total(range(2)), crew.total(range(2, 4))
        crew.wait_for(filled + published, range(2, 4), PATIENCE)
    check_all_finished(server, topic, filled + published)
    delete(server, topic)
    return {"share": Reading(published / max(1, consumed))}


def fan_out(server: Server, plan: Plan, *, channels: int) -> Readings:
    """Measure one topic with several channels and a reader each; rate and CPU are per delivery."""
    fewer = Plan(plan.size, plan.messages * 2 // channels, plan.seconds)
    names = [f"ch{number}" for number in range(channels)]
    return through(server, "fanout", fewer, names, publishers=1, deliveries=channels, events=1).readings()


def long_bodies(server: Server, plan: Plan, *, size: int) -> Readings:
    """Publish and consume concurrently; the rate is megabytes a second of both together."""
    some = Plan(size, max(BATCH, min(plan.messages, plan.messages * 600 // size)), plan.seconds)
    found = through(server, "bodies", some, ["ch", "ch"], publishers=2, deliveries=1, events=2)
    return {"rate": found.reading(size / 1e6)}


def through(
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
    topic = create(server, row, sorted(set(channels)))
    share = plan.messages // publishers
    writers = [publisher(server, topic, plan, share, batch_of(plan.size)) for _ in range(publishers)]
    readers = [consumer(server, topic, channel, plan) for channel in channels]
    found = flowing(server, topic, writers, readers, plan.seconds, deliveries=deliveries, events=events)
    delete(server, topic)
    return found


ROWS: Final = [
    Row("sub", "SUB + FIN from a full queue, 2 readers", (rate(1.5),), sub),
    Row(
        "both",
        "both at the same time, sum of published and consumed",
        (rate(1.6), less("cpu", "us/msg", goal=0.45)),
        both,
    ),
    Row(
        "balance",
        "2 writers next to 2 readers of a full queue",
        (Metric("share", "writers/readers", limit=0.5),),
        balance,
    ),
    *(
        Row(
            f"fanout{channels}",
            f"1 topic to {channels} channels, a reader each, deliveries",
            (rate(goal),),
            lambda server, plan, channels=channels: fan_out(server, plan, channels=channels),
        )
        for channels, goal in ((4, 2.0), (16, 4.0))
    ),
]
BODIES: Final = [
    Row(
        f"body{name}",
        f"bodies of {title}, published and consumed",
        (rate(1.0, "MB/s"),),
        lambda server, plan, size=size: long_bodies(server, plan, size=size),
    )
    for name, title, size in (("1k", "1 KB", 1024), ("64k", "64 KB", 65_536), ("1m", "1 MB", 1_000_000))
]
