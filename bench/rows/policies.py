"""Topics with a policy, compared with topics without."""

import json
from typing import Any, Final

from bench.metrics import Metric, Plan, Reading, Readings, Row, rate
from bench.rows.consuming import through
from bench.rows.work import Sample
from bench.server import Server

# The least ratio to the cost without a policy; a finished message should need no additional work.
MIN_SHARE_RULED: Final = 0.98
# Retaining finished messages should cost no more than removing them later.
MIN_SHARE_KEPT: Final = 0.95
# The two topics take turns, so that both run under the same conditions.
_TURNS: Final = 4
_RULED: Final = {"max_attempts": 5, "retry_delay": "1s"}
# A run with --messages and --seconds that publishes more than this in a turn includes the cost of removal.
_KEPT: Final = {"retain_time": "1h", "retain_bytes": "64MiB"}


def both_ruled(server: Server, plan: Plan) -> Readings:
    return _beside(server, plan, "ruled", _RULED)


def both_kept(server: Server, plan: Plan) -> Readings:
    return _beside(server, plan, "kept", _KEPT)


def _beside(server: Server, plan: Plan, name: str, definition: dict[str, Any]) -> Readings:
    """Publish and consume concurrently; the share is of processor time, which a busy machine affects less."""
    policy = {"topic": f"^bench_{name}_", "definition": definition}
    server.ask("PUT", "/policies?name=bench", json.dumps(policy).encode())
    turn = Plan(plan.size, plan.messages // _TURNS, plan.seconds / _TURNS)
    found: dict[str, list[Sample]] = {name: [], "free": []}
    for number in range(_TURNS):
        # The first of the two finds colder caches, so each is first equally often.
        for row in (name, "free") if number % 2 else ("free", name):
            found[row].append(through(server, row, turn, ["ch", "ch"], publishers=2, deliveries=1, events=2))
    server.ask("DELETE", "/policies?name=bench&apply=true")
    share = Reading(_cost(found["free"]) / _cost(found[name]))
    return found[name][-1].readings() | {
        "share": share,
        "pace": Reading(_pace(found[name]) / _pace(found["free"])),
    }


def _cost(samples: list[Sample]) -> float:
    """Return the server's processor time for a message."""
    return sum(one.server_cpu for one in samples) / sum(one.messages for one in samples)


def _pace(samples: list[Sample]) -> float:
    """Return messages a second."""
    return sum(one.messages for one in samples) / sum(one.seconds for one in samples)


def _figures(least: float) -> tuple[Metric, ...]:
    return rate(), Metric("share", "of the cost without", limit=least), Metric("pace", "of the rate without")


ROWS: Final = [
    Row(
        "both_ruled",
        "published and consumed at the same time with max_attempts set",
        _figures(MIN_SHARE_RULED),
        both_ruled,
    ),
    Row(
        "both_kept",
        "published and consumed at the same time, what is finished is kept",
        _figures(MIN_SHARE_KEPT),
        both_kept,
    ),
]
