"""All rows of the table in order, in groups that can be chosen by name."""

from typing import Final

from bench.metrics import Row
from bench.rows import (
    backlog,
    consuming,
    each,
    headers,
    hostile,
    http,
    idle,
    latency,
    layers,
    looking,
    policies,
    publishing,
    replication,
    stalls,
)

GROUPS: Final[dict[str, list[Row]]] = {
    "roundtrips": publishing.ROUND_TRIPS,
    "batches": [*publishing.BATCHES, *consuming.ROWS],
    "bodies": consuming.BODIES,
    "http": http.ROWS,
    "layers": layers.ROWS,
    "latency": latency.ROWS,
    "stalls": stalls.ROWS,
    "backlog": [*backlog.ROWS, *each.ROWS],
    "idle": idle.ROWS,
    "headers": headers.ROWS,
    "policies": policies.ROWS,
    "looking": looking.ROWS,
    "replication": replication.ROWS,
    "hostile": hostile.ROWS,
}
# Groups that are not part of the table that compares with the original.
_OTHERS: Final = {"headers", "policies", "looking", "replication", "hostile"}
USUAL: Final = ",".join(name for name in GROUPS if name not in _OTHERS)
# The table in parts of two to four minutes each, for a machine that cannot stay idle for longer.
PARTS: Final = ("roundtrips,batches", "bodies,http,layers", "latency,stalls", "backlog,idle")
ROWS: Final[dict[str, Row]] = {row.name: row for rows in GROUPS.values() for row in rows}


def chosen(names: str) -> list[Row]:
    """Return the rows that a comma-separated list of rows and groups names. Raises KeyError for others."""
    found: dict[str, Row] = {}
    for name in names.split(","):
        rows = GROUPS[name] if name in GROUPS else [ROWS[name]]
        found |= {row.name: row for row in rows}
    return list(found.values())
