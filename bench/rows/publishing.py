"""Publishing over TCP: in batches, one at a time, and without waiting for answers."""

from contextlib import closing
from functools import partial
from time import monotonic
from typing import Final

from bench import load, many
from bench.metrics import Plan, Readings, Row, rate
from bench.rows.work import BATCH, publisher, publishing
from bench.server import Server
from bench.workers import Work, Worker

PIPELINE_CHUNK: Final = 100
# Number of load processes; with many connections, a single process would be the limit.
PROCESSES: Final = 2


def mpub(server: Server, plan: Plan) -> Readings:
    share = plan.messages // 2
    return publishing(
        server, "mpub", plan, lambda topic: [publisher(server, topic, plan, share, BATCH) for _ in range(2)]
    ).readings()


def pub_pipelined(server: Server, plan: Plan) -> Readings:
    return publishing(
        server,
        "pub",
        plan,
        lambda topic: [publisher(server, topic, plan, plan.messages, PIPELINE_CHUNK, pipelined=True)],
    ).readings()


def one_at_a_time(server: Server, plan: Plan, *, command: str, connections: int) -> Readings:
    """Measure connections that each send one message and wait for its OK before the next."""
    processes = min(PROCESSES, connections)
    share = plan.messages // processes

    def works(topic: str) -> list[Work]:
        return [
            _one_at_a_time(server, topic, plan, share, command, connections // processes)
            for _ in range(processes)
        ]

    return publishing(server, f"{command}1x{connections}", plan, works).readings()


def _one_at_a_time(
    server: Server, topic: str, plan: Plan, quota: int, command: str, connections: int
) -> Work:
    def work(worker: Worker) -> None:
        bodies = load.bodies(plan.size, load.BATCH_VARIANTS if plan.size is None else 1)
        requests = [
            load.encode_pub(topic, body) if command == "pub" else load.encode_mpub(topic, [body])
            for body in bodies
        ]
        if connections == 1:  # without a poller the load costs half as much
            with closing(load.connect(server.tcp)) as conn:
                worker.start()
                worker.note(load.publish_synchronously(conn, requests, 1, quota, monotonic() + plan.seconds))
            return
        conns = [load.connect(server.tcp) for _ in range(connections)]
        worker.start()
        deadline = monotonic() + plan.seconds
        worker.note(many.round_trips(conns, requests, many.is_ok_frame, quota, deadline))

    return work


def _row(command: str, connections: int, goal: float) -> Row:
    plural = "connection" if connections == 1 else "connections"
    title = "MPUB of 1" if command == "mpub" else "PUB"
    return Row(
        f"{command}1x{connections}",
        f"{title}, synchronous, {connections} {plural}",
        (rate(goal),),
        partial(one_at_a_time, command=command, connections=connections),
        null=True,
    )


BATCHES: Final = [
    Row("mpub", "MPUB of 200, 2 connections", (rate(1.3),), mpub),
    Row("pub", "PUB pipelined, 1 connection", (rate(3),), pub_pipelined),
]
ROUND_TRIPS: Final = [
    _row(command, connections, goal)
    for command in ("mpub", "pub")
    for connections, goal in ((1, 1.0), (2, 1.0), (64, 1.3))
]
