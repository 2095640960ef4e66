"""Messages that each have a different traceparent header, compared with the same without headers."""

import struct
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

from bench import load
from bench.load import Address
from bench.metrics import Metric, Plan, Reading, Readings, Row, less, rate
from bench.rows.publishing import PIPELINE_CHUNK, mpub, pub_pipelined
from bench.rows.work import BATCH, Sample, batch_of, consumer, create, delete, flowing, publishing
from bench.rows.work import publisher as plain_publisher
from bench.server import Server
from bench.workers import Work, Worker

_HEAD: Final = b'{"traceparent":"00-%032x-%016x-01"}'
# The kind, the length and the JSON object, as a consumer gets them.
EXTENSION_BYTES: Final = 3 + len(_HEAD % (0, 0))
# Number of batches to cycle through; they have more traceparents than nsqd remembers.
_VARIANTS: Final = 16
# The least share of the rate without headers.
MIN_SHARE: Final = 0.7


def _extended(number: int, body: bytes) -> bytes:
    header = _HEAD % (number * 0x9E3779B97F4A7C15, number)
    return struct.pack(">H", len(header)) + header + body


def _pubs(topic: str, numbers: list[int], body: bytes) -> bytes:
    messages = [_extended(number, body) for number in numbers]
    line = b"PUB_EXT %b\n" % topic.encode()
    return b"".join(line + len(one).to_bytes(4, "big") + one for one in messages)


def _mpub(topic: str, numbers: list[int], body: bytes) -> bytes:
    command = load.encode_mpub(topic, [_extended(number, body) for number in numbers])
    return b"MPUB_EXT" + command.removeprefix(b"MPUB")


def publisher(
    server: Server,
    topic: str,
    plan: Plan,
    quota: int,
    per_batch: int,
    encode: Callable[[str, list[int], bytes], bytes],
) -> Work:
    def work(worker: Worker) -> None:
        size = plan.size or 200
        batches = [
            encode(topic, list(range(at * per_batch, (at + 1) * per_batch)), b"x" * size)
            for at in range(_VARIANTS)
        ]
        send = load.publish_pipelined if encode is _pubs else load.publish_synchronously
        with closing(_connect(server.tcp)) as conn:
            worker.start()
            worker.note(send(conn, batches, per_batch, quota, time.monotonic() + plan.seconds))

    return work


def _connect(address: Address) -> load.Conn:
    conn = load.open_socket(address)
    answer = load.handshake(conn, {"feature_negotiation": True, "extend_support": True})
    if b'"extend_support":true' not in answer:
        raise load.LoadError("this server takes no headers")
    return conn


def pub_ext(server: Server, plan: Plan) -> Readings:
    def works(topic: str) -> list[Work]:
        return [publisher(server, topic, plan, plan.messages, PIPELINE_CHUNK, _pubs)]

    return _beside(publishing(server, "pub_ext", plan, works).readings(), pub_pipelined(server, plan))


def mpub_ext(server: Server, plan: Plan) -> Readings:
    def works(topic: str) -> list[Work]:
        return [publisher(server, topic, plan, plan.messages // 2, BATCH, _mpub) for _ in range(2)]

    return _beside(publishing(server, "mpub_ext", plan, works).readings(), mpub(server, plan))


def both_ext(server: Server, plan: Plan) -> Readings:
    """Publish and consume concurrently, with headers on both sides."""
    plain = Plan(plan.size or 200, plan.messages, plan.seconds)
    return _beside(
        _through(server, plain, extended=True).readings(), _through(server, plain, extended=False).readings()
    )


def to_plain(server: Server, plan: Plan) -> Readings:
    """Publish with headers, and consume without asking for them."""
    plain = Plan(plan.size or 200, plan.messages, plan.seconds)
    return _beside(
        _through(server, plain, extended=True, readers=False).readings(),
        _through(server, plain, extended=False).readings(),
    )


def _through(server: Server, plan: Plan, *, extended: bool, readers: bool = True) -> Sample:
    topic = create(server, "both_ext", ["ch"])
    share, size = plan.messages // 2, plan.size or 0
    count = batch_of(size)
    if extended:
        writers = [publisher(server, topic, plan, share, count, _mpub) for _ in range(2)]
    else:
        writers = [plain_publisher(server, topic, plan, share, count) for _ in range(2)]
    if extended and readers:
        consumers = [_extended_consumer(server, topic, plan) for _ in range(2)]
    else:
        consumers = [consumer(server, topic, "ch", plan) for _ in range(2)]
    found = flowing(server, topic, writers, consumers, plan.seconds)
    delete(server, topic)
    return found


def _extended_consumer(server: Server, topic: str, plan: Plan) -> Work:
    def work(worker: Worker) -> None:
        with closing(_connect(server.tcp)) as conn:
            load.subscribe(conn, topic, "ch")
            worker.start()
            total = 0
            for count in load.consume(conn, (plan.size or 0) + EXTENSION_BYTES):
                if count:
                    total += count
                    worker.note(total)
                elif worker.stop_requested():
                    return

    return work


def _beside(found: Readings, without: Readings) -> Readings:
    """Return the rate with headers, its share of the rate without, and the additional cost of a message."""
    cost = (found["rate"].server_us or 0.0) / (without["rate"].server_us or 1.0)
    return found | {"share": Reading(found["rate"].value / without["rate"].value), "cost": Reading(cost)}


def _row(name: str, title: str, run: Callable[[Server, Plan], Readings]) -> Row:
    metrics = (rate(), Metric("share", "of that without", limit=MIN_SHARE), less("cost", "times the CPU"))
    return Row(name, title, metrics, run)


ROWS: Final = [
    _row("mpub_ext", "MPUB_EXT of 200, a traceparent each, 2 connections", mpub_ext),
    _row("pub_ext", "PUB_EXT pipelined, a traceparent each, 1 connection", pub_ext),
    _row("both_ext", "headers published and consumed at the same time", both_ext),
    _row("to_plain", "published with headers, consumed without, at the same time", to_plain),
]
