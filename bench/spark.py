"""``python -m bench.spark``: how fast a topic becomes Parquet and Parquet a topic, next to Spark alone.

Several nsqds store the messages. One Spark with local[2] runs every row in turn, in several rounds, so that a
busy moment of the machine affects all rows. Each run has its own channel, checkpoint and output, and reads
everything. Its messages are counted afterwards. The first round uses a small topic and warms Spark up.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from bench.load import HEADER
from bench.server import OURS, Program, Server
from pyspark_nsq.jobs import archive
from pyspark_nsq.jobs.archive_options import parse as parse_archive
from pyspark_nsq.jobs.run import run_until_end
from pyspark_nsq.jobs.session import spark_session
from pyspark_nsq.jobs.signals import Stop
from pyspark_nsq.parquet.layout import PARTITIONS
from pyspark_nsq.source.columns import MessageColumns
from pyspark_nsq.source.log_reader import LOST, read_range
from pyspark_nsq.source.options import SourceOptions
from pyspark_nsq.source.planner import LogRange

WARM_UP: Final = 300_000
PER_MPUB: Final = 2000
# Number of different bodies, so high that a compressor finds no repetition within its window.
VARIANTS: Final = 20_000


@dataclass
class Bench:
    """The settings of all rows."""

    spark: Any
    servers: list[Server]
    folder: Path
    runs: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)
    # Row -> processor seconds of the nsqds and of Spark, for each run.
    cpu: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def new_folder(self) -> Path:
        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        folder.mkdir()
        return folder

    @property
    def addresses(self) -> list[str]:
        return [f"{host}:{port}" for host, port in (server.http for server in self.servers)]

    def source(self, topic: str) -> dict[str, str]:
        """Return the options of the source and the sink."""
        return {"nsqdHttpAddresses": ",".join(self.addresses), "topic": topic}

    def copy_of(self, topic: str) -> str:
        """Return Parquet files with the rows of the topic."""
        copy = self.folder / f"{topic}.parquet"
        if not copy.exists():
            self.spark.read.format("nsq").options(**self.source(topic)).load().write.parquet(str(copy))
        return str(copy)


def json_bodies(size: int, count: int) -> list[bytes]:
    """Return orders as JSON with random numbers, padded or cut to one size."""
    draw = random.Random(1)
    made = []
    for number in range(count):
        order = {
            "order": number,
            "customer": draw.randrange(10**6),
            "sku": f"{draw.getrandbits(32):08x}",
            "price": draw.randrange(100, 99_999) / 100,
            "currency": "EUR",
            "token": f"{draw.getrandbits(256):064x}",
        }
        made.append(json.dumps(order).encode().ljust(size, b" ")[:size])
    return made


def publish(server: Server, topic: str, messages: int, size: int) -> None:
    """Fill the topic over HTTP, as fast as one connection can."""
    # This channel retains the messages for all runs; each run acknowledges them on its own channel.
    server.ask("POST", f"/topic/create?topic={topic}")
    server.ask("POST", f"/channel/create?topic={topic}&channel=keep")
    bodies = json_bodies(size, VARIANTS)
    connection = http.client.HTTPConnection(*server.http)
    batches = []
    for first in range(0, VARIANTS, PER_MPUB):
        chosen = bodies[first : first + PER_MPUB]
        framed = b"".join(len(body).to_bytes(4, "big") + body for body in chosen)
        batches.append(HEADER.pack(0, len(chosen))[4:] + framed)
    for number in range(messages // PER_MPUB):
        connection.request("POST", f"/mpub?topic={topic}&binary=true", batches[number % len(batches)])
        answer = connection.getresponse()
        if answer.read() != b"OK":
            raise SystemExit(f"publishing failed: {answer.status}")
    connection.close()


# --- the rows: each moves the topic, and returns the seconds that it took and how many messages it has moved


def archived(bench: Bench, topic: str) -> tuple[float, int]:
    folder = bench.new_folder()
    flags = [f"--nsqd-http-address={address}" for address in bench.addresses]
    options = parse_archive(
        [
            *flags,
            f"--topic={topic}",
            f"--channel=run-{bench.runs}",
            f"--output={folder / 'out'}",
            f"--checkpoint={folder / 'checkpoint'}",
            "--starting-offsets=earliest",
            "--available-now",
        ]
    )
    began = time.perf_counter()
    with redirect_stdout(None):  # hides the lines about the batches
        run_until_end(archive.start(bench.spark, options), Stop())
    return time.perf_counter() - began, stored(folder / "out")


def by_hour(rows: Any) -> Any:
    """Return rows with date and hour, as Spark's manual makes them."""
    from pyspark.sql import functions as f

    return rows.withColumns(
        {"date": f.to_date("timestamp"), "hour": f.lpad(f.hour("timestamp").cast("string"), 2, "0")}
    )


def table(bench: Bench, topic: str) -> tuple[float, int]:
    """Read the topic as a table."""
    out = bench.new_folder() / "out"
    began = time.perf_counter()
    rows = bench.spark.read.format("nsq").options(**bench.source(topic)).load()
    by_hour(rows).write.partitionBy(*PARTITIONS).parquet(str(out))
    return time.perf_counter() - began, stored(out)


def streamed(bench: Bench, topic: str, schema: str = "", **more: str) -> tuple[float, float, int]:
    """Read the topic as a stream; return the seconds of the query and those of its batches, and the rows."""
    folder = bench.new_folder()
    reader = bench.spark.readStream.format("nsq").options(**bench.source(topic), **more)
    reader = reader.options(channel=f"run-{bench.runs}", startingOffsets="earliest")
    began = time.perf_counter()
    rows = (reader.schema(schema) if schema else reader).load()
    writer = by_hour(rows).writeStream.format("parquet").partitionBy(*PARTITIONS)
    writer = writer.option("path", str(folder / "out")).option(
        "checkpointLocation", str(folder / "checkpoint")
    )
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    whole = time.perf_counter() - began
    batches = sum(progress.durationMs["triggerExecution"] for progress in query.recentProgress) / 1000
    return whole, batches, stored(folder / "out")


def stream(bench: Bench, topic: str) -> tuple[float, int]:
    whole, _, moved = streamed(bench, topic)
    return whole, moved


def batch_of_stream(bench: Bench, topic: str) -> tuple[float, int]:
    """Count the batches alone, because a query that keeps running starts once."""
    _, batches, moved = streamed(bench, topic)
    return batches, moved


def json_columns(bench: Bench, topic: str) -> tuple[float, int]:
    """Write the members of the JSON as columns."""
    schema = (
        "timestamp timestamp, sequence long, order long, customer long, sku string, price double, "
        "currency string, token string"
    )
    whole, _, moved = streamed(bench, topic, schema, bodyFormat="json")
    return whole, moved


def spark_alone(bench: Bench, topic: str) -> tuple[float, int]:
    """Read these rows from Parquet and write them by date and hour with Spark only, without nsqd."""
    out = bench.new_folder() / "out"
    source = bench.copy_of(topic)
    began = time.perf_counter()
    by_hour(bench.spark.read.parquet(source)).write.partitionBy(*PARTITIONS).parquet(str(out))
    return time.perf_counter() - began, stored(out)


def published(bench: Bench, topic: str, *columns: str) -> tuple[float, int]:
    """Write the rows of a Parquet copy to a new topic."""
    source = bench.copy_of(topic)
    bench.new_folder()
    into = f"{topic}-{bench.runs}"
    began = time.perf_counter()
    rows = bench.spark.read.parquet(source).selectExpr("body", *columns)
    rows.write.format("nsq").mode("append").options(**bench.source(into)).save()
    seconds = time.perf_counter() - began
    bounds = [json.loads(server.ask("GET", f"/log/bounds?topic={into}")) for server in bench.servers]
    for server in bench.servers:
        server.ask("POST", f"/topic/delete?topic={into}")
    return seconds, sum(log["end"] - log["first"] for log in bounds)


def published_with_headers(bench: Bench, topic: str) -> tuple[float, int]:
    return published(bench, topic, "map('source', nsqd, 'number', cast(sequence AS string)) AS headers")


def stored(out: Path) -> int:
    """Return how many rows the Parquet files below *out* have."""
    files = [path for path in out.rglob("*.parquet") if path.parent.name.startswith("hour=")]
    return sum(pq.read_metadata(path).num_rows for path in files)


ROWS: Final[dict[str, tuple[str, Callable[[Bench, str], tuple[float, int]]]]] = {
    "archive": ("nsq-archive", archived),
    "table": ("the topic as a table, into Parquet", table),
    "stream": ("the topic as a stream, into Parquet", stream),
    "stream-batch": ("the same without the start of the query", batch_of_stream),
    "json": ("the topic as a stream with bodyFormat=json, into Parquet", json_columns),
    "parquet": ("Spark alone, Parquet to Parquet", spark_alone),
    "sink": ("Parquet to a topic", published),
    "sink-headers": ("Parquet to a topic, with two headers", published_with_headers),
}
# The row that the others are compared with, and the share of its rate that each should reach.
BASELINE: Final = "parquet"
GOALS: Final = {"archive": 1.2, "table": 0.75, "stream-batch": 0.75, "json": 0.6}
# The most that the nsqds may use of the processor time of a row, as a share.
NSQD_GOAL: Final = 0.15


def spark_cpu() -> float:
    """Return the processor seconds of Spark and its Python processes so far."""
    import pyspark

    gateway = pyspark.SparkContext._gateway
    parents: dict[int, tuple[int, float]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = (
            int(words[1]),
            sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK"),
        )
    found = [gateway.proc.pid]  # type: ignore[union-attr]
    for known in found:
        found += [pid for pid, (parent, _) in parents.items() if parent == known]
    return sum(parents[pid][1] for pid in found) + time.process_time()


def run(bench: Bench, row: str, topic: str, messages: int) -> float:
    nsqd_before, spark_before = sum(server.cpu_seconds() for server in bench.servers), spark_cpu()
    seconds, moved = ROWS[row][1](bench, topic)
    used = sum(server.cpu_seconds() for server in bench.servers) - nsqd_before, spark_cpu() - spark_before
    bench.cpu.setdefault(row, []).append(used)
    if moved != messages:
        raise SystemExit(f"{row}: {moved} of {messages} messages were moved")
    shutil.rmtree(bench.folder / f"run-{bench.runs}")
    # Printed immediately, for users who stop the program before the table is complete.
    print(f"{row}: {messages / seconds:,.0f} a second ({topic})", file=sys.stderr, flush=True)
    return seconds


def report_goals(bench: Bench, rows: list[str]) -> None:
    """Print each row compared with Spark's own, round by round, and the nsqds' share of processor time."""
    if BASELINE not in rows:
        return
    print(
        f"\n| next to {ROWS[BASELINE][0]!r} | of its rate | of each round | wanted | CPU of nsqd | wanted |"
    )
    print("|---|--:|---|--:|--:|--:|")
    for row in (row for row in rows if row in GOALS):
        rounds = zip(bench.seconds[BASELINE], bench.seconds[row], strict=True)
        ratios = [baseline / mine for baseline, mine in rounds]
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        theirs, ours = (sum(one) for one in zip(*bench.cpu[row], strict=True))
        print(
            f"| {ROWS[row][0]} | {statistics.median(ratios):.2f} | {each} | {GOALS[row]} "
            f"| {theirs / ours:.0%} of the job's | below {NSQD_GOAL:.0%} |"
        )


def profile(bench: Bench, topic: str) -> None:
    """Print what each step costs one core of a worker, without Spark."""
    server, address = bench.servers[0], bench.addresses[0]
    options = SourceOptions.parse({"nsqdHttpAddresses": address, "topic": topic})
    log = json.loads(server.ask("GET", f"/log/bounds?topic={topic}"))
    part = LogRange(address, log["first"], log["end"])
    began, cpu, theirs = time.perf_counter(), time.process_time(), server.cpu_seconds()
    rows = sum(batch.num_rows for batch in read_range(part, options, LOST, MessageColumns()))
    wall, mine = time.perf_counter() - began, time.process_time() - cpu
    served = server.cpu_seconds() - theirs
    from pyspark_nsq.parquet.range_files import RangeFiles
    from pyspark_nsq.parquet.storage import FolderStorage

    folder = bench.new_folder()
    cpu = time.process_time()
    with RangeFiles(FolderStorage(folder), part) as files:
        for batch in read_range(part, options, LOST, MessageColumns()):
            list(files.write(batch))
        list(files.finish())
    written = time.process_time() - cpu - mine
    shutil.rmtree(folder)
    print(f"\nOne worker by itself, {rows} messages, in microseconds for each:\n")
    print("| step | us |\n|---|--:|")
    for step, seconds in (
        ("nsqd: read, check and send the frames (its CPU)", served),
        ("worker: receive and decode into Arrow (CPU)", mine),
        ("worker: Parquet, zstd (CPU)", written),
        ("receive and decode, as the clock has it", wall),
    ):
        print(f"| {step} | {seconds * 1e6 / rows:.2f} |")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=200, help="of a body, in bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nsqds", type=int, default=2)
    parser.add_argument("--rows", default=",".join(ROWS), help="default: %(default)s")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--data-root", help="where data folders are made (default: the temporary folder)")
    args = parser.parse_args(argv)
    # Spark starts Python processes for every query, which start faster with bytecode.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rows = args.rows.split(",")
    if not set(rows) <= ROWS.keys():
        parser.error(f"--rows has {args.rows}; there are: {', '.join(ROWS)}")
    folder = Path(tempfile.mkdtemp(prefix="nsq-bench-spark-", dir=args.data_root))
    step = args.nsqds * PER_MPUB
    messages, warm_up = args.messages // step * step, WARM_UP // step * step
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        servers = [
            stack.enter_context(Program(f"nsqd-{number}", OURS, args.data_root).serving())
            for number in range(args.nsqds)
        ]
        topics = {"warm-up": warm_up, "measured": messages}
        for topic, count in topics.items():
            for server in servers:
                publish(server, topic, count // args.nsqds, args.size)
        began = time.perf_counter()
        spark = stack.enter_context(spark_session("bench", args.master, {"spark.driver.memory": "2g"}))
        starting = time.perf_counter() - began
        bench = Bench(spark, servers, folder)
        cold = {row: warm_up / run(bench, row, "warm-up", warm_up) for row in rows}
        bench.cpu.clear()
        for _ in range(args.rounds):
            for row in rows:
                bench.seconds.setdefault(row, []).append(run(bench, row, "measured", messages))
        print(
            f"{messages} messages of {args.size} bytes, {args.nsqds} nsqd, {args.master}, "
            f"{os.cpu_count()} cores; starting Spark took {starting:.1f} s\n"
        )
        print("| | messages a second, warm | of each round | 300,000, cold | us of CPU, Spark | nsqd |")
        print("|---|--:|---|--:|--:|--:|")
        for row in rows:
            rates = [messages / seconds for seconds in bench.seconds[row]]
            each = ", ".join(f"{rate / 1000:,.0f} k" for rate in rates)
            theirs, ours = (sum(one) for one in zip(*bench.cpu[row], strict=True))
            mine, served = (seconds * 1e6 / messages / args.rounds for seconds in (ours, theirs))
            print(
                f"| {ROWS[row][0]} | {statistics.median(rates):,.0f} | {each} | {cold[row]:,.0f} "
                f"| {mine:.2f} | {served:.2f} |"
            )
        report_goals(bench, rows)
        profile(bench, "measured")
    return 0


if __name__ == "__main__":
    sys.exit(main())
