"""Metrics of copies: what this node's keepers have, and what this node keeps for others."""

from collections.abc import Iterator
from typing import Any, Final

from nsqcore.http.metrics import Family
from nsqd.server.replication.copying import Replication
from nsqd.server.replication.shown import GivenOut

_KEEPER: Final = ("keeper",)


def copies(replication: Replication | None) -> Iterator[Family]:
    """Yield the metric families; those of keepers are empty where there are none."""
    kept_by = [] if replication is None else replication.kept_by()
    keepers: list[tuple[tuple[str, ...], dict[str, Any]]] = [((one["address"],), one) for one in kept_by]
    yield Family(
        "nsqd_keeper_connected", "1 while that keeper is connected", _each(keepers, "connected"), _KEEPER
    )
    yield Family(
        "nsqd_keeper_stalled",
        "1 while that keeper does not acknowledge in time, and is not waited for",
        _each(keepers, "stalled"),
        _KEEPER,
    )
    yield Family(
        "nsqd_keeper_behind_bytes",
        "bytes sent to that keeper and not acknowledged yet",
        _each(keepers, "behind_bytes"),
        _KEEPER,
    )
    yield Family(
        "nsqd_keeper_behind_seconds",
        "how long the oldest unacknowledged byte has been under way",
        _each(keepers, "behind_seconds"),
        _KEEPER,
    )
    yield Family(
        "nsqd_keeper_linked_topics",
        "topics whose copy at that keeper counts as a replica",
        _each(keepers, "linked_topics"),
        _KEEPER,
    )
    yield Family(
        "nsqd_keeper_filled_topics",
        "topics of which that keeper has every file, durably, in a copy that counts",
        _each(keepers, "filled_topics"),
        _KEEPER,
    )
    yield Family(
        "nsqd_under_copied_topics",
        "topics with fewer linked keepers than --replicas or a policy wants",
        [((), 0 if replication is None else replication.under_copied())],
    )
    yield Family(
        "nsqd_homes_connected",
        "other nsqd whose messages are copied to this one now",
        [((), 0 if replication is None else replication.homes())],
    )
    yield from _given_out([] if replication is None else replication.given_out())


def _given_out(copies: list[GivenOut]) -> Iterator[Family]:
    yield Family(
        "nsqd_carried_topics",
        "topics of other nsqd that are delivered from copies here",
        [((), sum(one.topics for one in copies))],
    )
    yield Family(
        "nsqd_carried_owed",
        "messages of other nsqd still to be delivered from copies here; for each topic its fullest channel",
        [((), sum(one.owed for one in copies))],
    )
    yield Family(
        "nsqd_carried_unreadable",
        "topics of copies that should be delivered here but cannot be read; /carried names them",
        [((), sum(len(one.problems) for one in copies))],
    )


def _each(
    keepers: list[tuple[tuple[str, ...], dict[str, Any]]], key: str
) -> list[tuple[tuple[str, ...], float]]:
    return [(labels, float(one[key])) for labels, one in keepers]
