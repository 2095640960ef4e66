"""Finds all nsqds of the cluster, whatever topics they have."""

from nsqclient.wire.address import join_host_port
from nsqclient.wire.node_error import NodeError
from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.http import NodeConnections
from pyspark_nsq.source.reasons import explain_lookup


def all_nsqds(connections: NodeConnections, lookupds: tuple[str, ...], retry_s: float) -> list[str]:
    """Return the HTTP addresses of all nsqds from the first nsqlookupd that lists any. Raises SourceError."""
    reasons = []
    for address in lookupds:
        try:
            found = connections.node(address, retry_s).get_json("/nodes", [], _addresses)
        except NodeError as error:
            reasons.append(explain_lookup(address, error))
        else:
            if found:
                return found
            reasons.append(f"{address} lists no nsqd")
    raise SourceError(f"no nsqd was found: {'; '.join(reasons)}")


def _addresses(answer: object) -> list[str]:
    producers = answer["producers"] if isinstance(answer, dict) else None
    if not isinstance(producers, list):
        raise TypeError("producers is not a list")
    return sorted(join_host_port(one["broadcast_address"], one["http_port"]) for one in producers)
