"""The cost of idle objects: ten thousand consumers, and five thousand topics without traffic."""

import http.client
import select
import socket
import time
from contextlib import closing
from typing import Final

from bench import load
from bench.load import OK_FRAME, LoadError, expect_oks
from bench.metrics import Plan, Reading, Readings, Row, less
from bench.rows.seed import CHANNELS, seed, topic_name
from bench.rows.work import create, scaled
from bench.server import Program, Server
from bench.workers import Work, Worker, start_workers

CONNECTIONS: Final = 10_000
TOPICS: Final = 5_000
# The processor share is measured for this time, after a rest in which work left over from the set-up ends.
WATCH_S: Final = 5.0
REST_S: Final = 2.5
# After a start each topic writes its two checkpoints in this time.
STARTED_S: Final = 10.0
# Every client gets two heartbeats within WATCH_S.
HEARTBEAT_MS: Final = 2500
CHANNELS_OF_IDLE: Final = 10


def connections(program: Program, plan: Plan) -> Readings:
    """Measure consumers with RDY 1 on ten channels that answer their heartbeats."""
    count = scaled(CONNECTIONS, plan)
    with program.serving() as server:
        topic = create(server, "idle", [f"ch{number}" for number in range(CHANNELS_OF_IDLE)])
        before = server.memory_mib()
        with start_workers([_waiting(server, topic, count)]) as crew:
            crew.begin()
            time.sleep(REST_S)
            used = _processor_share(server)
            memory = server.memory_mib() - before
            crew.dismiss()
            if crew.counts[0] < count:
                raise LoadError(
                    f"{count:,} connections were to be sent heartbeats, {crew.counts[0]:,} got one"
                )
    return {"memory": Reading(memory), "cpu": Reading(used)}


def _processor_share(server: Server) -> float:
    """Return how much of a processor the server uses from now on, in percent."""
    before = server.cpu_seconds()
    time.sleep(WATCH_S)
    return 100 * (server.cpu_seconds() - before) / WATCH_S


def _waiting(server: Server, topic: str, count: int) -> Work:
    def work(worker: Worker) -> None:
        poller = select.epoll()
        by_number: dict[int, socket.socket] = {}
        for number in range(count):
            conn = load.connect(server.tcp, heartbeat_interval=HEARTBEAT_MS)
            conn.sendall(f"SUB {topic} ch{number % CHANNELS_OF_IDLE}\nRDY 1\n".encode())
            by_number[conn.fileno()] = conn
            poller.register(conn.fileno(), select.EPOLLIN)
        worker.start()
        heard: set[int] = set()
        while not worker.stop_requested():
            for number, _ in poller.poll(0.1):
                frame = by_number[number].recv(4096)
                if not frame:
                    raise LoadError("the server closed an idle connection")
                if frame.endswith(b"_heartbeat_"):
                    heard.add(number)
                    by_number[number].sendall(b"NOP\n")
                elif not frame.endswith(OK_FRAME):
                    raise LoadError(f"expected a heartbeat, got {frame!r}")
            worker.note(len(heard))

    return work


def topics(program: Program, plan: Plan) -> Readings:
    """Measure a start on 5,000 topics of three channels, each with a waiting message, and the idle node."""
    count = scaled(TOPICS, plan)
    with program.folder() as data:
        seed(data, count)
        with program.serving((), data) as server:
            _publish_to_each(server, count)
        with program.serving((), data) as server:
            time.sleep(STARTED_S * count / TOPICS)
            used = _processor_share(server)
            found = {
                "start": Reading(server.started_s),
                "cpu": Reading(used),
                "memory": Reading(server.memory_mib()),
                "stats": Reading(_seconds(server, "/stats?format=json")),
            }
            if f'"{topic_name(count - 1)}"'.encode() not in server.ask("GET", "/stats?format=json"):
                raise LoadError("a topic is missing after a start")
            try:
                found["metrics"] = Reading(_seconds(server, "/metrics"))
            except LoadError as error:
                if "404" not in str(error):  # the original has none
                    raise
    return found


def _publish_to_each(server: Server, count: int) -> None:
    with closing(load.connect(server.tcp)) as conn:
        for first in range(0, count, 100):
            numbers = range(first, min(first + 100, count))
            conn.sendall(b"".join(load.encode_pub(topic_name(number), b"x" * 100) for number in numbers))
            expect_oks(conn, len(numbers))


def _seconds(server: Server, path: str) -> float:
    began = time.monotonic()
    server.ask("GET", path)
    return time.monotonic() - began


CREATED: Final = 3_000
# The original writes all its metadata for each creation, so the row does not wait for the end.
CREATION_S: Final = 30.0
LIMIT_S: Final = 15.0


def creation(program: Program, plan: Plan) -> Readings:
    """Create topics with two channels each, one request after another; a slow server is stopped early."""
    count = scaled(CREATED, plan)
    with program.serving() as server:
        conn = http.client.HTTPConnection(*server.http, timeout=60)
        moments = [time.monotonic()]
        for number in range(count):
            topic = f"created_{number}"
            _post(conn, f"/topic/create?topic={topic}")
            for channel in CHANNELS[:2]:
                _post(conn, f"/channel/create?topic={topic}&channel={channel}")
            moments.append(time.monotonic())
            if moments[-1] - moments[0] > CREATION_S:
                break
        conn.close()
    made = len(moments) - 1
    third = max(1, made // 3)
    first, last = moments[third] - moments[0], moments[-1] - moments[-1 - third]
    taken = moments[-1] - moments[0]
    # For a server that was stopped early, the rest is estimated at the pace of its last third.
    rest = (count - made) * last / third
    return {"seconds": Reading(taken + rest), "growth": Reading(last / first)}


def _post(conn: http.client.HTTPConnection, path: str) -> None:
    conn.request("POST", path)
    answer = conn.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise LoadError(f"{path}: {answer.status} {body!r}")


ROWS: Final = [
    Row(
        "connections",
        f"{CONNECTIONS:,} idle consumers",
        (less("memory", "MiB more than without", goal=0.5), less("cpu", "% of a processor", goal=0.5)),
        connections,
        own=True,
        most_runs=1,
    ),
    Row(
        "topics",
        f"{TOPICS:,} idle topics of {len(CHANNELS)} channels",
        (
            less("start", "s to /ping", goal=0.5),
            less("cpu", "% of a processor", goal=0.5),
            less("memory", "MiB", goal=0.5),
            less("stats", "s, /stats", limit=1.0),
            less("metrics", "s, /metrics", limit=1.0),
        ),
        topics,
        own=True,
        most_runs=1,
    ),
    Row(
        "creation",
        f"{CREATED:,} topics of 2 channels created one after another",
        (less("seconds", "s", limit=LIMIT_S), less("growth", "last third / first", limit=1.2)),
        creation,
        own=True,
        most_runs=1,
    ),
]
