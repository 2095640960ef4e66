"""The cost of a replica: a primary with one replica on the same machine, compared with a node without."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from json import loads
from pathlib import Path
from typing import Final

from bench.load import LoadError
from bench.metrics import Metric, Plan, Reading, Readings, Row, less, rate
from bench.rows.publishing import mpub, one_at_a_time, pub_pipelined
from bench.server import Program, Server

# Shares of the rate without a replica, and multiples of the node's processor time for a message.
MIN_SHARE: Final = 0.6
MAX_COST: Final = 1.35
# The replica's processor time as a share of the primary's.
MAX_REPLICA: Final = 0.5
_PATIENCE_S: Final = 30.0


@contextmanager
def replicated(program: Program) -> Iterator[tuple[Server, Server]]:
    """Yield a primary and its replica."""
    with tempfile.TemporaryDirectory() as folder:
        secret = Path(folder) / "secret"
        secret.write_text("bench" * 8)
        member = ["--broadcast-address=127.0.0.1", f"--cluster-secret-file={secret}"]
        with program.serving(["--node-id=901", *member]) as replica:
            flags = [
                "--node-id=902",
                *member,
                f"--replica={replica.tcp[0]}:{replica.tcp[1]}",
                "--replicas=1",
                "--replicas-missing=refuse",
                # Longer than any answer here takes, so no publish is answered without the replica.
                "--replica-ack-timeout=20s",
            ]
            with program.serving(flags) as primary:
                _wait_for_replica(primary)
                yield primary, replica


def _wait_for_replica(primary: Server) -> None:
    until = time.monotonic() + _PATIENCE_S
    while True:
        replicas = loads(primary.ask("GET", "/replication"))["replicas"]
        if [one for one in replicas if one["state"] in {"in_sync", "caught_up"}]:
            return
        if time.monotonic() > until:
            raise LoadError("the replica is not in sync")
        time.sleep(0.05)


def _compared(program: Program, plan: Plan, run: Callable[[Server, Plan], Readings]) -> Readings:
    with program.serving() as single:
        without = run(single, plan)
    with replicated(program) as (primary, replica):
        before_primary, before_replica = primary.cpu_seconds(), replica.cpu_seconds()
        found = run(primary, plan)
        at_replica = (replica.cpu_seconds() - before_replica) / (primary.cpu_seconds() - before_primary)
    cost = (found["rate"].server_us or 0.0) / (without["rate"].server_us or 1.0)
    return found | {
        "share": Reading(found["rate"].value / without["rate"].value),
        "cost": Reading(cost),
        "replica": Reading(at_replica),
    }


def _row(name: str, title: str, run: Callable[[Server, Plan], Readings]) -> Row:
    metrics = (
        rate(),
        Metric("share", "of that without", limit=MIN_SHARE),
        less("cost", "times the CPU", limit=MAX_COST),
        less("replica", "of it at the replica", limit=MAX_REPLICA),
    )
    return Row(name, title, metrics, partial(_compared, run=run), own=True)


ROWS: Final = [
    _row("mpub_replicated", "MPUB of 200 with a replica, 2 connections", mpub),
    _row("pub_replicated", "PUB pipelined with a replica, 1 connection", pub_pipelined),
    _row(
        "pub1_replicated",
        "PUB one at a time with a replica, 1 connection",
        partial(one_at_a_time, command="pub", connections=1),
    ),
]
