"""Finds all nsqds of the cluster, whatever topics they have."""

import time
from typing import Final

from nsqclient.wire.address import join_host_port
from nsqclient.wire.node_error import NodeError
from pyspark_nsq.source.asking import Asking
from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.http import NodeConnection, passes
from pyspark_nsq.source.reasons import explain_lookup

# The pause before the nsqlookupds are asked again.
_REST_S: Final = 0.2


def all_nsqds(asking: Asking, lookupds: tuple[str, ...], retry_s: float) -> list[str]:
    """Return the HTTP addresses of all nsqds that any nsqlookupd lists. Raises SourceError if none does.

    One that was just restarted may list some of them only, and an nsqd that restarts is listed by none. They
    are asked again for *retry_s* only while none lists an nsqd.
    """
    deadline = time.monotonic() + retry_s
    while True:
        found, reasons, may_pass = _listed(asking, lookupds)
        if found:
            return sorted(found)
        if not may_pass or time.monotonic() + _REST_S > deadline:
            raise SourceError(f"no nsqd was found: {'; '.join(reasons)}")
        time.sleep(_REST_S)


def all_nsqds_for_certain(asking: Asking, lookupds: tuple[str, ...], retry_s: float) -> list[str]:
    """Return what all nsqlookupds list together. Raises SourceError if one does not answer for *retry_s*.

    Ids must be assigned to the same nsqds each time, and that one may list an nsqd that no other lists.
    """
    deadline = time.monotonic() + retry_s
    while True:
        found: set[str] = set()
        silent = []
        for address, answer in asking.ask(lookupds, _nodes, max(0.0, deadline - time.monotonic())).items():
            if isinstance(answer, NodeError):
                silent.append(explain_lookup(address, answer))
            else:
                found.update(answer)
        if silent:
            raise SourceError(
                f"which nsqds there are for rows with a dedup_id is uncertain: {'; '.join(silent)}"
            )
        if found:
            return sorted(found)
        if time.monotonic() + _REST_S > deadline:
            raise SourceError(f"no nsqd was found: {' and '.join(lookupds)} list none")
        time.sleep(_REST_S)


def _listed(asking: Asking, lookupds: tuple[str, ...]) -> tuple[set[str], list[str], bool]:
    """Return what all of them list, why each of the others lists nothing, and whether that may pass."""
    found: set[str] = set()
    reasons = []
    may_pass = False
    for address, answer in asking.ask(lookupds, _nodes, 0.0).items():
        if isinstance(answer, NodeError):
            reasons.append(explain_lookup(address, answer))
            may_pass = may_pass or passes(answer)
        elif not answer:
            reasons.append(f"{address} lists no nsqd")
            may_pass = True
        else:
            found.update(answer)
    return found, reasons, may_pass


def _nodes(node: NodeConnection) -> list[str]:
    return node.get_json("/nodes", [], _addresses)


def _addresses(answer: object) -> list[str]:
    producers = answer["producers"] if isinstance(answer, dict) else None
    if not isinstance(producers, list):
        raise TypeError("producers is not a list")
    return [join_host_port(one["broadcast_address"], one["http_port"]) for one in producers]
