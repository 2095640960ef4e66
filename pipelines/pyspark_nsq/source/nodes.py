"""Finds all nsqds of the cluster, whatever topics they have."""

from nsqclient.wire.address import join_host_port
from nsqclient.wire.node_error import NodeError
from pyspark_nsq.source.asking import Asking
from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.http import NodeConnection
from pyspark_nsq.source.reasons import explain_lookup


def all_nsqds(asking: Asking, lookupds: tuple[str, ...], retry_s: float) -> list[str]:
    """Return the HTTP addresses of all nsqds that any nsqlookupd lists. Raises SourceError if none does.

    One that was just restarted may list some of them only. One that does not answer is asked again for
    *retry_s* only if the others list no nsqd.
    """
    found, reasons = _listed(asking, lookupds, 0.0)
    if not found and retry_s:
        found, reasons = _listed(asking, lookupds, retry_s)
    if not found:
        raise SourceError(f"no nsqd was found: {'; '.join(reasons)}")
    return sorted(found)


def all_nsqds_for_certain(asking: Asking, lookupds: tuple[str, ...], retry_s: float) -> list[str]:
    """Return what all nsqlookupds list together. Raises SourceError if one does not answer for *retry_s*.

    Ids must be assigned to the same nsqds each time, and that one may list an nsqd that no other lists.
    """
    found: set[str] = set()
    silent = []
    for address, answer in asking.ask(lookupds, _nodes, retry_s).items():
        if isinstance(answer, NodeError):
            silent.append(explain_lookup(address, answer))
        else:
            found.update(answer)
    if silent:
        raise SourceError(f"which nsqds there are for rows with a dedup_id is uncertain: {'; '.join(silent)}")
    if not found:
        raise SourceError(f"no nsqd was found: {' and '.join(lookupds)} list none")
    return sorted(found)


def _listed(asking: Asking, lookupds: tuple[str, ...], retry_s: float) -> tuple[set[str], list[str]]:
    """Return what all of them list, and why each of the others lists nothing."""
    found: set[str] = set()
    reasons = []
    for address, answer in asking.ask(lookupds, _nodes, retry_s).items():
        if isinstance(answer, NodeError):
            reasons.append(explain_lookup(address, answer))
        elif not answer:
            reasons.append(f"{address} lists no nsqd")
        else:
            found.update(answer)
    return found, reasons


def _nodes(node: NodeConnection) -> list[str]:
    return node.get_json("/nodes", [], _addresses)


def _addresses(answer: object) -> list[str]:
    producers = answer["producers"] if isinstance(answer, dict) else None
    if not isinstance(producers, list):
        raise TypeError("producers is not a list")
    return [join_host_port(one["broadcast_address"], one["http_port"]) for one in producers]
