"""The longest stall: how long a small publish waits while the server does a large operation."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

from bench import load
from bench.load import LoadError
from bench.metrics import Plan, Reading, Readings, Row, less
from bench.prober import Prober
from bench.rows.seed import seed
from bench.rows.work import create, fill
from bench.server import Program, Server
from nsqclient.wire.message import FRAME_OVERHEAD, MESSAGE_ID_BYTES

MESSAGES: Final = 1_000_000
BODY: Final = 16
REQUEUED: Final = 200_000
# Body size of the channel that is emptied, so that it has a gigabyte, or less in a shorter run.
EMPTIED_BODY: Final = 1000
# Long enough for two checkpoints, which are written each second.
WATCHED_S: Final = 2.5
TOPICS: Final = 5_000
LIMIT_MS: Final = 50.0
# Small files, so that the deleted topic has many.
FLAGS: Final = (
    "--max-body-size", str(64 << 20),
    "--max-bytes-per-file", str(4 << 20),
    "--mem-queue-size", "1000",
    "--max-rdy-count", "1000000",
)  # fmt: skip


def stalls(program: Program, plan: Plan) -> Readings:
    """Do large operations one by one on a server with 5,000 topics; return the worst wait of each."""
    count = min(MESSAGES, plan.messages * 2)
    found: Readings = {}
    with program.folder() as data:
        seed(data, min(TOPICS, count // 200))
        with program.serving(FLAGS, data) as server, Prober().asking(server) as prober:
            for name, act in _acts(server, count):
                prober.forget()
                act()
                found[name] = Reading(prober.worst_ms())
    return found


def _acts(server: Server, count: int) -> list[tuple[str, Callable[[], object]]]:
    doomed = create(server, "stall_delete", ["a", "b", "c"])
    fill(server, doomed, Plan(200, count, 60), count)
    topic = create(server, "stall", ["ch"])
    messages = load.bodies(BODY, count)
    emptied = create(server, "stall_empty", ["ch"])
    fill(server, emptied, Plan(EMPTIED_BODY, count, 120), count)
    requeued = create(server, "stall_requeue", ["ch"])
    over_tcp = load.encode_mpub(topic, messages)
    body = b"\n".join(messages)
    web = "/mpub?topic=" + topic
    return [
        ("nothing", lambda: time.sleep(1.0)),
        ("mpub_tcp", lambda: _publish(server, over_tcp)),
        ("mpub_http", lambda: server.ask("POST", web, body)),
        ("stats", lambda: server.ask("GET", "/stats?format=json")),
        ("stats_text", lambda: server.ask("GET", "/stats")),
        ("metrics", lambda: _metrics(server)),
        ("delete", lambda: server.ask("POST", f"/topic/delete?topic={doomed}")),
        # The files of a deleted topic are removed in the background.
        ("after_delete", lambda: time.sleep(1.0)),
        ("empty", lambda: _empty(server, emptied)),
        ("requeue", lambda: _requeue(server, requeued, min(REQUEUED, count))),
    ]


def _publish(server: Server, request: bytes) -> None:
    with closing(load.connect(server.tcp)) as conn:
        conn.sendall(request)
        load.expect_ok(conn)


def _empty(server: Server, topic: str) -> None:
    server.ask("POST", f"/channel/empty?topic={topic}&channel=ch")
    time.sleep(WATCHED_S)


def _requeue(server: Server, topic: str, count: int) -> None:
    """Requeue all messages that one consumer has in flight, in random order."""
    _publish(server, load.encode_mpub(topic, load.bodies(BODY, count)))
    stride = FRAME_OVERHEAD + BODY
    with closing(load.connect(server.tcp)) as conn:
        load.subscribe(conn, topic, "ch")
        conn.sendall(b"RDY %d\n" % count)
        data = b"".join(_received(conn, count * stride))
        ids = [
            data[at + FRAME_OVERHEAD - MESSAGE_ID_BYTES : at + FRAME_OVERHEAD]
            for at in range(0, len(data), stride)
        ]
        random.Random(1).shuffle(ids)
        conn.sendall(b"RDY 0\n" + b"".join([b"REQ %b 0\n" % one for one in ids]))
        time.sleep(WATCHED_S)


def _received(conn: Any, size: int) -> Iterator[bytes]:
    while size > 0:
        data = conn.recv(load.READ_SIZE)
        if not data:
            raise LoadError("the server closed the connection")
        size -= len(data)
        yield data


def _metrics(server: Server) -> None:
    try:
        server.ask("GET", "/metrics")
    except LoadError as error:
        if "404" not in str(error):  # the original has none
            raise


_NAMES: Final = (
    ("nothing", "nothing (the noise)"),
    ("mpub_tcp", "MPUB of a million over TCP"),
    ("mpub_http", "/mpub of a million"),
    ("stats", "/stats?format=json of 5,000 topics"),
    ("stats_text", "/stats of 5,000 topics"),
    ("metrics", "/metrics of 5,000 topics"),
    ("delete", "delete of a topic of a million messages"),
    ("after_delete", "the second after it"),
    ("empty", "/channel/empty of a gigabyte"),
    ("requeue", "200,000 requeued in any order"),
)
ROWS: Final = [
    Row(
        "stall",
        "longest wait of a small PUB next to",
        tuple(less(name, f"ms, {title}", limit=LIMIT_MS) for name, title in _NAMES),
        stalls,
        own=True,
        most_runs=1,
    )
]
