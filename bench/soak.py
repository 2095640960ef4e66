"""``python -m bench.soak``: tests whether memory, descriptors, disk or processor time of a busy node grow.

It publishes to eight topics at a steady pace, in batches and with due times. Their consumers requeue some
messages with a delay, leave some unanswered until they time out, and sometimes disconnect and return. Topics
are created, emptied and deleted, clients disconnect within a body, and statistics are requested. Each
sample is printed. At the end everything is finished and deleted.

A short run comes before the long one. Three kinds of growth are named and make the exit code 1: metrics that
are higher in the second half than in the first, memory above that after the short run, and types with more
live objects than after the short run.
"""

import argparse
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from bench import load
from bench.counted import objects_of
from bench.disk import disk_in_use
from bench.load import LoadError
from bench.server import OURS, Program, Server
from nsqclient.wire.frames import FRAME_MESSAGE, FrameParser
from nsqclient.wire.message import FRAME_OVERHEAD, MESSAGE_ID_BYTES

MIB: Final = 1 << 20
TOPICS: Final = 8
SIZE: Final = 1000
PER_BATCH: Final = 10
ROUNDS_PER_SECOND: Final = 10
# Shares of the messages that a consumer gets for the first time: requeued, and left to time out.
PUT_OFF: Final = 0.05
LEFT: Final = 0.002
LONGEST_MS: Final = 8000
TIMEOUT_MS: Final = 3000
# A consumer disconnects after about this many messages.
STAYS: Final = 3000
# Once in so many rounds a topic is created and deleted, or the statistics are requested.
TOPIC_EVERY: Final = 25
FIGURES_EVERY: Final = 50
REST_S: Final = 20.0
# The short run, and how much more than the short one the long one may leave.
SHORT_S: Final = 20.0
MEMORY_LEFT: Final = 5.0
OBJECTS_LEFT: Final = 20
COUNTED: Final = OURS.replace("-m nsqd", "-m bench.counted", 1)
FLAGS: Final = ("--max-bytes-per-file=4194304", "--mem-queue-size=1000")
# How much more the second half may have: a factor, and an additional amount.
_GROWTH: Final = {"memory": (1.02, 1.0), "descriptors": (1.0, 4.0), "disk": (1.1, 4.0), "cpu": (1.1, 0.0)}
# The share of samples in which caches fill and consumers connect, at least one.
_WARM_UP: Final = 0.1
# One to warm up and one in each half.
_MIN_SAMPLES: Final = 3
_BODY: Final = FRAME_OVERHEAD - 8
_ID: Final = _BODY - MESSAGE_ID_BYTES


@dataclass(frozen=True, slots=True)
class Sample:
    """The node at one moment; *cpu* is processor time in us per message finished since the last sample."""

    at_s: float
    memory: float
    descriptors: float
    disk: float
    cpu: float
    published: int
    finished: int

    def __str__(self) -> str:
        return (
            f"| {self.at_s:.0f} | {self.memory:.1f} | {self.descriptors:.0f} | {self.disk:.1f} "
            f"| {self.cpu:.0f} | {self.published:,} | {self.finished:,} |"
        )


def growth(samples: Sequence[Sample]) -> list[str]:
    """Return sentences about the metrics that were higher in the second half than in the first.

    Raises LoadError if there are too few samples to tell.
    """
    if len(samples) < _MIN_SAMPLES:
        raise LoadError(f"{len(samples)} samples are too few to tell whether anything grew")
    steady = samples[max(1, int(len(samples) * _WARM_UP)) :]
    first, second = steady[: len(steady) // 2], steady[len(steady) // 2 :]
    found = []
    for name, (ratio, slack) in _GROWTH.items():
        before = median(float(getattr(one, name)) for one in first)
        after = median(float(getattr(one, name)) for one in second)
        if after > before * ratio + slack:
            found.append(f"{name} grew from {before:.1f} to {after:.1f}")
    return found


def objects_left(before: Counter[str], after: Counter[str]) -> list[str]:
    """Return sentences about the types with more live objects than before."""
    return [
        f"{count - before[kind]:,} more objects of {kind} are alive: {count:,}"
        for kind, count in after.most_common()
        if count > before[kind] + OBJECTS_LEFT
    ]


class Reader:
    """A consumer of one topic in a separate thread."""

    def __init__(self, server: Server, topic: str, ended: threading.Event) -> None:
        self.finished = 0
        self._server = server
        self._topic = topic
        self._ended = ended
        self._chance = random.Random(topic)
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._ended.is_set():
            with closing(load.connect(self._server.tcp, msg_timeout=TIMEOUT_MS)) as conn:
                self._consume(conn, self._chance.randrange(STAYS // 2, STAYS * 2))

    def _consume(self, conn: socket.socket, count: int) -> None:
        load.subscribe(conn, self._topic, "ch")
        conn.sendall(b"RDY 500\n")
        conn.settimeout(0.5)
        parser = FrameParser()
        while count > 0 and not self._ended.is_set():
            try:
                data = conn.recv(load.READ_SIZE)
            except TimeoutError:
                continue
            if not data:
                raise LoadError("the server closed a consumer's connection")
            answers = []
            for kind, body in parser.feed(data):
                if kind == FRAME_MESSAGE:
                    answers.append(self._answer(body))
                    count -= 1
                elif body == b"_heartbeat_":
                    answers.append(b"NOP\n")
            conn.sendall(b"".join(answers))

    def _answer(self, body: bytes) -> bytes:
        message_id = body[_ID:_BODY]
        drawn = self._chance.random() if body[_ID - 1] == 1 else 1.0
        if drawn < LEFT:
            return b""
        if drawn < LEFT + PUT_OFF:
            return b"REQ %b %d\n" % (message_id, self._chance.randrange(LONGEST_MS))
        self.finished += 1
        return b"FIN %b\n" % message_id


class Soak:
    """One run on one server."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._ended = threading.Event()
        self._topics = [f"soak{number}" for number in range(TOPICS)]
        self._readers = [Reader(server, topic, self._ended) for topic in self._topics]
        self._published = 0
        self._cpu_s = server.cpu_seconds()
        self._finished = 0

    def run(self, seconds: float, every_s: float) -> list[Sample]:
        """Work for *seconds* and return the samples; print another after everything is deleted."""
        samples = []
        for reader in self._readers:
            reader.thread.start()
        began = time.monotonic()
        with closing(load.connect(self._server.tcp, heartbeat_interval=-1)) as conn:
            chance = random.Random(1)
            rounds = 0
            while (passed := time.monotonic() - began) < seconds:
                self._publish(conn, chance)
                rounds += 1
                if rounds % TOPIC_EVERY == 0:
                    self._connect_and_leave(conn, f"passing{rounds // TOPIC_EVERY % 5}")
                    self._leave_within_a_body()
                if rounds % FIGURES_EVERY == 0:
                    self._server.ask("GET", "/stats?format=json")
                    self._server.ask("GET", "/metrics")
                if passed >= every_s * (len(samples) + 1):
                    samples.append(self._sample(passed))
                    print(samples[-1], flush=True)
                time.sleep(max(0.0, began + rounds / ROUNDS_PER_SECOND - time.monotonic()))
        self._wait_until_all_is_finished()
        self._ended.set()
        for reader in self._readers:
            reader.thread.join(5)
        for topic in self._topics:
            self._server.ask("POST", f"/topic/delete?topic={topic}")
        time.sleep(REST_S)
        print(self._sample(time.monotonic() - began), flush=True)
        return samples

    def _publish(self, conn: socket.socket, chance: random.Random) -> None:
        for topic in self._topics:
            batch = load.encode_mpub(topic, [b"x" * SIZE] * PER_BATCH)
            later = b"DPUB %b %d\n%b%b" % (
                topic.encode(),
                chance.randrange(1, LONGEST_MS),
                SIZE.to_bytes(4, "big"),
                b"y" * SIZE,
            )
            conn.sendall(batch + later)
            load.expect_oks(conn, 2)
        self._published += len(self._topics) * (PER_BATCH + 1)

    def _connect_and_leave(self, conn: socket.socket, topic: str) -> None:
        self._server.ask("POST", f"/topic/create?topic={topic}")
        self._server.ask("POST", f"/channel/create?topic={topic}&channel=c")
        conn.sendall(load.encode_mpub(topic, [b"z" * SIZE] * 50))
        load.expect_ok(conn)
        self._server.ask("POST", f"/channel/empty?topic={topic}&channel=c")
        self._server.ask("POST", f"/topic/delete?topic={topic}")

    def _leave_within_a_body(self) -> None:
        head = b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nF4240\r\n"
        with closing(socket.create_connection(self._server.http)) as conn:
            conn.sendall(head + b"z" * 100_000)
        with closing(load.connect(self._server.tcp, heartbeat_interval=-1)) as conn:
            conn.sendall(b"PUB half\n" + (1_000_000).to_bytes(4, "big") + b"z" * 100_000)

    def _wait_until_all_is_finished(self) -> None:
        deadline = time.monotonic() + 2 * (LONGEST_MS + TIMEOUT_MS) / 1000 + 30
        while any(self._unfinished(topic) for topic in self._topics):
            if time.monotonic() > deadline:
                raise LoadError("messages are left")
            time.sleep(0.5)

    def _unfinished(self, topic: str) -> int:
        (channel,) = self._server.topic_stats(topic)["channels"]
        return int(channel["depth"] + channel["in_flight_count"] + channel["deferred_count"])

    def _sample(self, at_s: float) -> Sample:
        finished = sum(reader.finished for reader in self._readers)
        cpu_s = self._server.cpu_seconds()
        spent_us = (cpu_s - self._cpu_s) * 1e6 / max(1, finished - self._finished)
        self._cpu_s, self._finished = cpu_s, finished
        descriptors = sum(1 for _ in Path(f"/proc/{self._server.pid}/fd").iterdir())
        return Sample(
            at_s,
            self._server.memory_mib(),
            descriptors,
            disk_in_use(self._folder) / MIB,
            spent_us,
            self._published,
            finished,
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument(
        "--cmd", default=COUNTED, help="how to start the server (default: python -m bench.counted)"
    )
    parser.add_argument("--seconds", type=float, default=600, help="how long is published")
    parser.add_argument("--every", type=float, default=20, help="seconds from one sample to the next")
    parser.add_argument("--data-root", help="where data folders are made (default: the temporary folder)")
    args = parser.parse_args(arguments)
    if not 0 < args.every <= args.seconds / (_MIN_SAMPLES + 1):
        parser.error(f"--seconds must be at least {_MIN_SAMPLES + 1} times --every, and --every above 0")
    program = Program("ours", args.cmd, args.data_root)
    print("| s | resident MiB | descriptors | disk MiB | us of CPU a message | published | finished |")
    print("|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    with program.folder() as data, program.serving(FLAGS, data) as server:
        try:
            if args.cmd == COUNTED:
                objects_of(server.pid)  # the first count makes some objects itself
            Soak(server, data).run(SHORT_S, SHORT_S)
            memory = server.memory_mib()
            objects = objects_of(server.pid) if args.cmd == COUNTED else Counter()
            grown = growth(Soak(server, data).run(args.seconds, args.every))
            left = server.memory_mib() - memory
            if left > MEMORY_LEFT:
                grown.append(f"{left:.1f} MiB more than after the short run are resident")
            if args.cmd == COUNTED:
                grown += objects_left(objects, objects_of(server.pid))
        except LoadError as error:
            print(error, file=sys.stderr)
            return 1
    print("\n".join(grown) or "nothing grew")
    return int(bool(grown))


if __name__ == "__main__":
    sys.exit(main())
