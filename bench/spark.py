"""``python -m bench.spark``: how fast a topic becomes Parquet, compared with Spark copying Parquet.

Several nsqds hold the messages. One Spark with local[2] runs every row in turn, in several rounds, so that a
busy moment of the machine affects all rows. Each run has its own channel, checkpoint and output and reads
everything; its rows are counted afterwards. The first round uses a small topic and warms Spark up.
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
from collections.abc import Callable, Mapping
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from bench.load import HEADER
from bench.server import OURS, Program, Server
from pyspark_nsq.jobs import archive
from pyspark_nsq.jobs.archive_options import parse as parse_archive
from pyspark_nsq.jobs.run import run_until_end
from pyspark_nsq.jobs.session import spark_session
from pyspark_nsq.jobs.signals import Stop
from pyspark_nsq.source.columns import MessageColumns
from pyspark_nsq.source.log_reader import LOST, read_range
from pyspark_nsq.source.options import SourceOptions
from pyspark_nsq.source.planner import LogRange
from pyspark_nsq.source.schema import CALENDAR, SCHEMA
from pyspark_nsq.transforms.by_hour import COLUMNS, by_hour

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
    # This channel keeps the messages for all runs; each run acknowledges them on its own channel.
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


# --- the rows: each stores the topic and returns the folder and the seconds that it took


def archived(bench: Bench, topic: str, writer: str) -> tuple[Path, float]:
    folder = bench.new_folder()
    flags = [f"--nsqd-http-address={address}" for address in bench.addresses]
    options = parse_archive(
        [
            *flags,
            f"--topic={topic}",
            f"--channel=run-{bench.runs}",
            f"--writer={writer}",
            f"--output={folder / 'out'}",
            f"--checkpoint={folder / 'checkpoint'}",
            "--starting-offsets=earliest",
            "--available-now",
        ]
    )
    began = time.perf_counter()
    with redirect_stdout(None):  # hides the lines about the batches
        run_until_end(archive.start(bench.spark, options), Stop())
    return folder / "out", time.perf_counter() - began


def by_worker(bench: Bench, topic: str) -> tuple[Path, float]:
    return archived(bench, topic, "python")


def by_rows(bench: Bench, topic: str) -> tuple[Path, float]:
    return archived(bench, topic, "spark")


def by_calendar(rows: Any) -> Any:
    """Return rows with the folders of :func:`by_hour`, made by the functions in Spark's own manual."""
    from pyspark.sql import functions as f

    return rows.withColumns(
        {"date": f.to_date("timestamp"), "hour": f.lpad(f.hour("timestamp").cast("string"), 2, "0")}
    )


def table(
    bench: Bench,
    topic: str,
    folders: Callable[[Any], Any] = by_calendar,
    schema: StructType = SCHEMA,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Path, float]:
    """Do the same as :func:`from_parquet`, with the topic read as a table instead of a stream."""
    out = bench.new_folder() / "out"
    options = {"nsqdHttpAddresses": ",".join(bench.addresses), "topic": topic}
    began = time.perf_counter()
    rows = folders(bench.spark.read.format("nsq").schema(schema).options(**options).load())
    rows.write.options(**settings).partitionBy(*COLUMNS).parquet(str(out))
    return out, time.perf_counter() - began


def table_as_advised(bench: Bench, topic: str) -> tuple[Path, float]:
    """As docs/evidence/spark.md advises: day and hour from the source, and settings for Parquet."""
    schema = StructType([*SCHEMA, *CALENDAR])
    return table(bench, topic, lambda rows: rows, schema, archive.parquet_settings())


def from_parquet(
    bench: Bench,
    topic: str,
    folders: Callable[[Any], Any] = by_calendar,
    options: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Path, float]:
    """Read these rows from Parquet and write them by date and hour with Spark only, without nsqd."""
    source = bench.folder / f"{topic}.parquet"
    if not source.exists():
        where = {"nsqdHttpAddresses": ",".join(bench.addresses), "topic": topic}
        bench.spark.read.format("nsq").options(**where).load().write.parquet(str(source))
    out = bench.new_folder() / "out"
    began = time.perf_counter()
    rows = folders(bench.spark.read.parquet(str(source)))
    rows.write.options(**options).partitionBy(*COLUMNS).parquet(str(out))
    return out, time.perf_counter() - began


def from_parquet_as_small(bench: Bench, topic: str) -> tuple[Path, float]:
    """Do the same with the compression that the workers use."""
    zstd = {"compression": "zstd", "parquet.compression.codec.zstd.level": "1"}
    return from_parquet(bench, topic, options=zstd)


def from_parquet_as_archived(bench: Bench, topic: str) -> tuple[Path, float]:
    """Do the same with everything that our archive does and sets for these rows."""
    return from_parquet(bench, topic, by_hour, archive.parquet_settings())


def json_columns(bench: Bench, topic: str) -> tuple[Path, float]:
    """Write the members of the JSON as columns, by date and hour."""
    folder = bench.new_folder()
    options = {
        "nsqdHttpAddresses": ",".join(bench.addresses),
        "topic": topic,
        "channel": f"run-{bench.runs}",
        "startingOffsets": "earliest",
        "bodyFormat": "json",
    }
    schema = (
        "timestamp timestamp, sequence long, order long, customer long, sku string, price double, "
        "currency string, token string"
    )
    began = time.perf_counter()
    orders = bench.spark.readStream.format("nsq").schema(schema).options(**options).load()
    writer = by_hour(orders).writeStream.format("parquet").partitionBy(*COLUMNS)
    writer = writer.option("path", str(folder / "out")).option(
        "checkpointLocation", str(folder / "checkpoint")
    )
    writer.trigger(availableNow=True).start().awaitTermination()
    return folder / "out", time.perf_counter() - began


ROWS: Final[dict[str, tuple[str, Callable[[Bench, str], tuple[Path, float]]]]] = {
    "worker": ("nsq-archive, files written by the Python workers", by_worker),
    "rows": ("nsq-archive --writer=spark: through Spark's rows", by_rows),
    "table": ("the topic read as a table, into Parquet", table),
    "table-ours": ("the same with date and hour from the source, and our settings", table_as_advised),
    "json": ("JSON to columns: bodyFormat=json, through Spark's rows", json_columns),
    "parquet": ("Spark alone, Parquet to Parquet", from_parquet),
    "parquet-ours": ("the same with the expressions and settings of our archive", from_parquet_as_archived),
    "parquet-zstd": ("the same with zstd at level 1, as the workers write", from_parquet_as_small),
}
# The row that the others are compared with, and the share of its rate that each should reach.
BESIDE: Final = "parquet"
GOALS: Final = {"worker": 1.2, "rows": 0.75, "table": 0.75, "table-ours": 0.75, "json": 0.6}
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
    out, seconds = ROWS[row][1](bench, topic)
    used = sum(server.cpu_seconds() for server in bench.servers) - nsqd_before, spark_cpu() - spark_before
    bench.cpu.setdefault(row, []).append(used)
    files = [path for path in out.rglob("*.parquet") if path.parent.name.startswith("hour=")]
    stored = sum(pq.read_metadata(path).num_rows for path in files)
    if stored != messages:
        raise SystemExit(f"{row}: {stored} of {messages} messages were stored")
    shutil.rmtree(out.parent)
    # Printed at once, for users who stop the program before the table is complete.
    print(f"{row}: {messages / seconds:,.0f} a second ({topic})", file=sys.stderr, flush=True)
    return seconds


def report_goals(bench: Bench, rows: list[str]) -> None:
    """Print each row compared with Spark's own, round by round, and the nsqds' share of processor time."""
    if BESIDE not in rows:
        return
    print(f"\n| beside {ROWS[BESIDE][0]!r} | of its rate | of each round | wanted | CPU of nsqd | wanted |")
    print("|---|--:|---|--:|--:|--:|")
    for row in (row for row in rows if row in GOALS):
        rounds = zip(bench.seconds[BESIDE], bench.seconds[row], strict=True)
        ratios = [beside / mine for beside, mine in rounds]
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
    from pyspark_nsq.parquet.places import FolderPlace
    from pyspark_nsq.parquet.range_files import RangeFiles

    folder = bench.new_folder()
    cpu = time.process_time()
    with RangeFiles(FolderPlace(folder), part) as files:
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
