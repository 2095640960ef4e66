"""Metrics of replication: the replicas of this node, and the copies here."""

from collections.abc import Iterator
from typing import Any, Final

from nsqcore.http.metrics import Family
from nsqd.replication.frames import REFUSALS
from nsqd.server.replication.service import Replication

_REPLICA: Final = ("replica",)
# Metric families with one value for each replica: name, help, key of GET /replication.
_OF_REPLICA: Final = (
    ("nsqd_replica_lag_bytes", "bytes sent to that replica and not acknowledged yet", "lag_bytes"),
    ("nsqd_replica_lag_seconds", "age of the oldest byte that it has not acknowledged", "lag_seconds"),
    ("nsqd_replica_in_sync_topics", "topics of which that replica is in sync", "in_sync_topics"),
    (
        "nsqd_replica_caught_up_topics",
        "topics of which that replica has every file, durably and acknowledged",
        "caught_up_topics",
    ),
)


def replication_metrics(replication: Replication) -> Iterator[Family]:
    """Yield the metric families; those of replicas are empty where there are none."""
    shown, node = replication.to_json(), replication.node
    replicas: list[dict[str, Any]] = shown["replicas"]
    labels = [(one["address"] or one["identity"],) for one in replicas]
    connected = [float(one["state"] != "unreachable") for one in replicas]
    stalled = [float(one["state"] == "stalled") for one in replicas]
    yield Family(
        "nsqd_replica_connected",
        "1 while that replica is connected",
        list(zip(labels, connected, strict=True)),
        _REPLICA,
    )
    yield Family(
        "nsqd_replica_stalled",
        "1 while that replica does not acknowledge in time, and no publish waits for it",
        list(zip(labels, stalled, strict=True)),
        _REPLICA,
    )
    for name, text, key in _OF_REPLICA:
        yield Family(
            name,
            text,
            [(label, float(one[key])) for label, one in zip(labels, replicas, strict=True)],
            _REPLICA,
        )
    copies: list[dict[str, Any]] = shown["copies"]
    promoted = [one for one in copies if one["state"] != "replica"]
    yield _one(
        "nsqd_under_replicated_topics",
        "topics with fewer replicas in sync than --replicas or a policy wants",
        replication.primary.under_replicated(),
    )
    yield _one(
        "nsqd_primaries_connected",
        "other nsqd whose logs are replicated to this one now",
        len({one["owner"] for one in copies if one["connected"]}),
    )
    yield _one("nsqd_owned_topics", "topics of promoted copies here", sum(one["topics"] for one in promoted))
    yield _one(
        "nsqd_owned_pending_messages",
        "messages of promoted copies that are pending here; one that is pending on two channels counts twice",
        sum(one["pending"] for one in promoted),
    )
    yield _one(
        "nsqd_owned_unreadable_topics",
        "topics of promoted copies that cannot be read; GET /replication names them",
        sum(len(one["problems"]) for one in promoted),
    )
    yield _one(
        "nsqd_failovers",
        "copies here that took over for a silent owner",
        0 if node is None else node.jobs.failovers,
        counter=True,
    )
    yield _one(
        "nsqd_yielded_messages",
        "pending messages that another owner delivers instead",
        0 if node is None else node.yielded(),
    )
    refused = {} if node is None else node.state.refusals
    yield Family(
        "nsqd_replication_refused",
        "connections of other nodes that were refused, by reason",
        [((code,), float(refused.get(code, 0))) for code in REFUSALS.values()],
        ("code",),
        counter=True,
    )


def _one(name: str, text: str, value: float, *, counter: bool = False) -> Family:
    return Family(name, text, [((), float(value))], counter=counter)
