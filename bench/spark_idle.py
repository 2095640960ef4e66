"""``python -m bench.spark_idle``: measures what a query without a trigger costs the nsqds of an idle topic.

The reader is called as Spark's engine calls it, ten milliseconds after each answer. The nsqds' processor time
without a query is measured first and subtracted.
"""

import argparse
import sys
import time
from contextlib import ExitStack

from pyspark.sql.streaming.datasource import ReadAllAvailable

from bench.server import OURS, Program, Server
from pyspark_nsq.source.options import SourceOptions
from pyspark_nsq.source.stream_reader import NsqStreamReader

# Spark's setting spark.sql.streaming.pollingDelay.
POLLING_DELAY_S = 0.01


def cpu(servers: list[Server]) -> float:
    return sum(server.cpu_seconds() for server in servers)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark_idle", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--nsqds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--data-root", help="where data folders are made (default: the temporary folder)")
    args = parser.parse_args(argv)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(Program(f"nsqd-{number}", OURS, args.data_root).serving())
            for number in range(args.nsqds)
        ]
        for server in servers:
            server.ask("POST", "/mpub?topic=idle", b"a\nb")
        addresses = ",".join(f"{host}:{port}" for host, port in (server.http for server in servers))
        options = {"nsqdHttpAddresses": addresses, "topic": "idle", "channel": "query"}
        reader = NsqStreamReader(SourceOptions.parse(options))
        everything = ReadAllAvailable()
        end = reader.latestOffset(reader.initialOffset(), everything)
        reader.commit(end)
        before = cpu(servers)
        time.sleep(args.seconds)
        resting = cpu(servers) - before
        before, mine, looks = cpu(servers), time.process_time(), 0
        until = time.monotonic() + args.seconds
        while time.monotonic() < until:
            end = reader.latestOffset(end, everything)
            looks += 1
            time.sleep(POLLING_DELAY_S)
        asked, mine = cpu(servers) - before, time.process_time() - mine
        reader.stop()
    print(f"{args.nsqds} nsqds, {looks / args.seconds:.1f} looks a second, in percent of a core:")
    query, rest = (100 * one / args.seconds for one in (asked - resting, resting))
    print(f"  the nsqds together: {query:.2f}, wanted below 2 (at rest {rest:.2f})")
    print(f"  the process that plans: {100 * mine / args.seconds:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
