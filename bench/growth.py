"""``python -m bench.growth``: measures the cost of a message as everything around it grows.

Publishes and consumes concurrently, and divides the server's processor time by the messages. One number grows
tenfold and a hundredfold at a time: existing topics, channels of the topic, connections, waiting messages,
bytes of a body.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import load, many
from bench.load import LoadError
from bench.metrics import Plan
from bench.rows.consuming import through
from bench.rows.seed import seed
from bench.rows.work import (
    PATIENCE,
    Sample,
    consumer,
    create,
    fill,
    publisher,
    sample,
)
from bench.server import OURS, Program, Server
from bench.workers import Work, Worker, start_workers

FLAGS: Final = ("--mem-queue-size", "10000")
SIZE: Final = 200


@dataclass(frozen=True)
class Growth:
    """One number that grows: its steps, and a function that runs one step with a number of messages."""

    title: str
    steps: tuple[int, ...]
    run: Callable[[Program, int, int], Sample]


def _both(server: Server, plan: Plan) -> Sample:
    return through(server, "growth", plan, ["ch", "ch"], publishers=2, deliveries=1, events=1)


def of_topics(program: Program, count: int, messages: int) -> Sample:
    """Measure with *count* idle topics of three channels."""
    with program.folder() as data:
        seed(data, count)
        with program.serving(FLAGS, data) as server:
            # Work left over from the start must not count as the cost of a message.
            time.sleep(1 + count / 1000)
            return _both(server, Plan(SIZE, messages, 5))


def of_channels(program: Program, count: int, messages: int) -> Sample:
    """Measure with *count* channels, a reader each; the cost is divided by the deliveries."""
    with program.serving(FLAGS) as server:
        names = [f"ch{number}" for number in range(count)]
        plan = Plan(SIZE, max(2000, messages // count), 5)
        return through(server, "growth", plan, names, publishers=1, deliveries=count, events=1)


def of_connections(program: Program, count: int, messages: int) -> Sample:
    """Measure *count* publishers in two processes, each with one message under way."""
    with program.serving(FLAGS) as server:
        topic = create(server, "growth", ["ch"])
        request = load.encode_pub(topic, b"x" * SIZE)
        quota = messages // 5 // 2

        def work(worker: Worker) -> None:
            conns = [load.connect(server.tcp) for _ in range(count // 2)]
            worker.start()
            deadline = time.monotonic() + 5
            worker.note(many.round_trips(conns, [request], many.is_ok_frame, quota, deadline))

        works: list[Work] = [work, work]
        with start_workers(works) as crew:
            cpu = server.cpu_seconds()
            crew.begin()
            crew.wait(range(2), 60)
            return sample(server, crew, crew.total(), cpu)


def of_depth(program: Program, count: int, messages: int) -> Sample:
    """Measure with a backlog of *count* messages from the start; reads keep pace with publishes."""
    with program.serving(FLAGS) as server:
        topic = create(server, "growth", ["ch", "other"])
        fill(server, topic, Plan(SIZE, count, 60), count)
        filled = int(server.topic_stats(topic)["message_count"])
        works = [publisher(server, topic, Plan(SIZE, messages, 5), messages // 2, 200) for _ in range(2)]
        works += [consumer(server, topic, "ch", Plan(SIZE, messages, 5)) for _ in range(2)]
        with start_workers(works) as crew:
            cpu = server.cpu_seconds()
            crew.begin()
            crew.wait(range(2), PATIENCE)
            published = crew.total(range(2))
            # The readers stay *count* messages behind: they read as many as were published.
            crew.wait_for(published, range(2, 4), PATIENCE)
            found = sample(server, crew, max(published, crew.total(range(2, 4))), cpu)
        if server.topic_stats(topic)["message_count"] != filled + published:
            raise LoadError("not every message was counted")
        return found


def of_size(program: Program, size: int, messages: int) -> Sample:
    """Measure with bodies of *size* bytes."""
    with program.serving(FLAGS) as server:
        return _both(server, Plan(size, max(200, min(messages, messages * 1000 // size)), 5))


GROWTHS: Final = {
    "topics": Growth("idle topics next to it (3 channels each)", (10, 100, 1_000, 5_000), of_topics),
    "channels": Growth("channels of the topic, a reader each; per delivery", (1, 10, 100), of_channels),
    "connections": Growth(
        "connections that publish one message at a time", (2, 20, 200, 2_000), of_connections
    ),
    "depth": Growth("messages that wait before", (1_000, 10_000, 100_000, 1_000_000, 5_000_000), of_depth),
    "size": Growth("bytes of a body", (20, 200, 2_000, 20_000, 200_000), of_size),
}


def table(found: dict[str, dict[int, Sample]]) -> str:
    lines = [
        "| what grows | to | us of the server per message | next to the smallest | messages/s |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, samples in found.items():
        least = None
        for step, one in samples.items():
            cost = one.reading().server_us or 0.0
            least = least or cost
            times = f"{cost / least:.2f}" if least else ""
            lines.append(
                f"| {GROWTHS[name].title} | {step:,} | {cost:.2f} | {times} | {one.reading().value:,.0f} |"
            )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.growth", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--cmd", default=OURS, help="how to start the server (default: python -m nsqd)")
    parser.add_argument("--of", default=",".join(GROWTHS), help="comma-separated, of: %(default)s")
    parser.add_argument("--messages", type=int, default=500_000, help="messages of a run")
    parser.add_argument("--most", type=int, default=10_000_000, help="leave out the steps above this")
    parser.add_argument("--data-root", help="where data folders are made (default: the temporary folder)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the costs to FILE")
    args = parser.parse_args(arguments)
    names = args.of.split(",")
    if unknown := [name for name in names if name not in GROWTHS]:
        parser.error(f"nothing of that name grows: {', '.join(unknown)}")
    program = Program("ours", args.cmd, args.data_root)
    found: dict[str, dict[int, Sample]] = {}
    try:
        for name in names:
            for step in GROWTHS[name].steps:
                if step <= args.most:
                    one = GROWTHS[name].run(program, step, args.messages)
                    found.setdefault(name, {})[step] = one
                    print(
                        f"{name:12} {step:>10,} {one.reading().server_us:8.2f} us",
                        file=sys.stderr,
                        flush=True,
                    )
    except LoadError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(table(found))
    if args.json:
        costs = {
            name: {step: one.reading().server_us for step, one in steps.items()}
            for name, steps in found.items()
        }
        args.json.write_text(json.dumps(costs, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
