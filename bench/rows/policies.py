"""A topic with a policy that counts attempts, beside one of which no policy says anything."""

import json
from typing import Final

from bench.figures import Figure, Plan, Reading, Readings, Row, rate
from bench.rows.consuming import through
from bench.rows.work import Sample
from bench.server import Server

# Of the cost without a policy: there is nothing to be done for a message that is finished.
LEAST_SHARE: Final = 0.98
# The two take turns, so that both see the same machine.
_TURNS: Final = 4
_POLICY: Final = {"topic": "^bench_ruled_", "definition": {"max_attempts": 5, "retry_delay": "1s"}}


def both_ruled(server: Server, plan: Plan) -> Readings:
    """Published and consumed at once; the share is of processor time, which a busy machine disturbs less."""
    server.ask("PUT", "/policies?name=bench", json.dumps(_POLICY).encode())
    turn = Plan(plan.size, plan.messages // _TURNS, plan.seconds / _TURNS)
    found: dict[str, list[Sample]] = {"ruled": [], "free": []}
    for number in range(_TURNS):
        # Who comes first finds less in the caches: each does so as often as the other.
        for row in ("ruled", "free") if number % 2 else ("free", "ruled"):
            found[row].append(through(server, row, turn, ["ch", "ch"], publishers=2, deliveries=1, events=2))
    server.ask("DELETE", "/policies?name=bench")
    cost = {row: _cost(samples) for row, samples in found.items()}
    return found["ruled"][-1].readings() | {"share": Reading(cost["free"] / cost["ruled"])}


def _cost(samples: list[Sample]) -> float:
    """The server's processor time for a message."""
    return sum(one.server_cpu for one in samples) / sum(one.messages for one in samples)


ROWS: Final = [
    Row(
        "both_ruled",
        "published and consumed at once with max_attempts set",
        (rate(), Figure("share", "of the cost without", limit=LEAST_SHARE)),
        both_ruled,
    ),
]
