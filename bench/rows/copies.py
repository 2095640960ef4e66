"""The cost of a copy: a home with one keeper on the same machine, compared with a node without."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from json import loads
from typing import Final

from bench.figures import Figure, Plan, Reading, Readings, Row, less, rate
from bench.load import LoadError
from bench.rows.publishing import mpub, one_at_a_time, pub_pipelined
from bench.server import Program, Server

# Shares of the rate without a copy, and multiples of the home's processor time for a message.
LEAST_SHARE: Final = 0.6
MOST_COST: Final = 1.35
# The keeper's processor time as a share of the home's.
MOST_KEEPING: Final = 0.5
_PATIENCE_S: Final = 10.0


@contextmanager
def copied(program: Program) -> Iterator[tuple[Server, Server]]:
    """Yield a home and its keeper."""
    with program.serving(["--node-id=901", "--broadcast-address=127.0.0.1"]) as keeper:
        flags = [
            "--node-id=902",
            "--broadcast-address=127.0.0.1",
            f"--keepers={keeper.tcp[0]}:{keeper.tcp[1]}",
            "--replicas=1",
            "--without-keeper=refuse",
            # Longer than any answer here takes, so no publish is answered without the copy.
            "--keeper-timeout=20s",
        ]
        with program.serving(flags) as home:
            until = time.monotonic() + _PATIENCE_S
            while not loads(home.ask("GET", "/carried"))["kept_by"][0]["connected"]:
                if time.monotonic() > until:
                    raise LoadError("the keeper is not connected")
                time.sleep(0.05)
            yield home, keeper


def _beside(program: Program, plan: Plan, run: Callable[[Server, Plan], Readings]) -> Readings:
    with program.serving() as alone:
        without = run(alone, plan)
    with copied(program) as (home, keeper):
        at_home, at_keeper = home.cpu_seconds(), keeper.cpu_seconds()
        found = run(home, plan)
        keeping = (keeper.cpu_seconds() - at_keeper) / (home.cpu_seconds() - at_home)
    cost = (found["rate"].server_us or 0.0) / (without["rate"].server_us or 1.0)
    return found | {
        "share": Reading(found["rate"].value / without["rate"].value),
        "cost": Reading(cost),
        "keeping": Reading(keeping),
    }


def _row(name: str, title: str, run: Callable[[Server, Plan], Readings]) -> Row:
    figures = (
        rate(),
        Figure("share", "of that without", limit=LEAST_SHARE),
        less("cost", "times the CPU", limit=MOST_COST),
        less("keeping", "of it at the keeper", limit=MOST_KEEPING),
    )
    return Row(name, title, figures, partial(_beside, run=run), own=True)


ROWS: Final = [
    _row("mpub_copied", "MPUB of 200 with a copy, 2 connections", mpub),
    _row("pub_copied", "PUB pipelined with a copy, 1 connection", pub_pipelined),
    _row(
        "pub1_copied",
        "PUB one at a time with a copy, 1 connection",
        partial(one_at_a_time, command="pub", connections=1),
    ),
]
