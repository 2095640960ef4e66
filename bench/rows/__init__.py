"""All rows of the table in order, in groups that can be chosen by name."""

from typing import Final

from bench.metrics import Row
from bench.rows import (
    backlog,
    consuming,
    deferred,
    headers,
    http,
    idle,
    latency,
    layers,
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
    "backlog": [*backlog.ROWS, *deferred.ROWS],
    "idle": idle.ROWS,
    "headers": headers.ROWS,
    "replication": replication.ROWS,
}
# Groups that are not part of the table that compares with the original.
_OTHERS: Final = {"headers", "replication"}
USUAL: Final = ",".join(name for name in GROUPS if name not in _OTHERS)
ROWS: Final[dict[str, Row]] = {row.name: row for rows in GROUPS.values() for row in rows}


def chosen(names: str) -> list[Row]:
    """Return the rows that a comma-separated list of rows and groups names. Raises KeyError for others."""
    found: dict[str, Row] = {}
    for name in names.split(","):
        rows = GROUPS[name] if name in GROUPS else [ROWS[name]]
        found |= {row.name: row for row in rows}
    return list(found.values())
