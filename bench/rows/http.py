"""Publishing over HTTP on keep-alive connections, with one request under way on each."""

import socket
from functools import partial
from time import monotonic
from typing import Final

from bench import load, many
from bench.metrics import Plan, Readings, Row, rate
from bench.rows.work import publishing
from bench.server import Server
from bench.workers import Work, Worker

PROCESSES: Final = 2
# Messages in one /mpub, which makes a request of 20 KB.
PER_REQUEST: Final = 100


def posting(server: Server, plan: Plan, *, path: str, connections: int) -> Readings:
    per_request = PER_REQUEST if path == "mpub" else 1

    def work_on(topic: str) -> Work:
        def work(worker: Worker) -> None:
            if path == "mpub":
                requests = load.variants(
                    plan.size, PER_REQUEST, lambda bodies: load.encode_http_mpub(topic, bodies)
                )
            else:
                requests = [load.encode_http_pub(topic, body) for body in load.bodies(plan.size, 64)]
            conns = [
                socket.create_connection(server.http, timeout=20) for _ in range(connections // PROCESSES)
            ]
            worker.start()
            quota = plan.messages // PROCESSES // per_request
            deadline = monotonic() + plan.seconds
            sent = many.round_trips(conns, requests, many.is_http_ok, quota, deadline)
            worker.note(sent * per_request)

        return work

    return publishing(
        server, f"http_{path}", plan, lambda topic: [work_on(topic) for _ in range(PROCESSES)]
    ).readings()


ROWS: Final = [
    Row(
        f"http_{path}{connections}",
        f"HTTP /{path}{f' of {PER_REQUEST}' if path == 'mpub' else ''}, {connections} connections",
        (rate(1.2),),
        partial(posting, path=path, connections=connections),
        null=path == "pub",
    )
    for path in ("pub", "mpub")
    for connections in (16, 256)
]
