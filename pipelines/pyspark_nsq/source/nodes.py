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


def all_nsqds(
    asking: Asking, lookupds: tuple[str, ...], retry_s: float, *, complete: bool = False
) -> list[str]:
    """Return the HTTP addresses of all nsqds that any nsqlookupd lists. Raises SourceError if none does.

    One that was just restarted may list some of them only, and an nsqd that restarts is listed by none. They
    are asked again for *retry_s* only while none lists an nsqd. With *complete* all of them must answer: ids
    must be assigned to the same nsqds each time, and one may list an nsqd that no other lists.
    """
    deadline = time.monotonic() + retry_s
    while True:
        answers = asking.ask(lookupds, _nodes, 0.0)
        errors = {address: one for address, one in answers.items() if isinstance(one, NodeError)}
        listed = {address: one for address, one in answers.items() if not isinstance(one, NodeError)}
        found = set().union(*listed.values())
        if found and not (complete and errors):
            return sorted(found)
        may_pass = any(map(passes, errors.values())) or not all(listed.values())
        if not may_pass or time.monotonic() + _REST_S > deadline:
            reasons = [explain_lookup(address, error) for address, error in errors.items()]
            if found:
                raise SourceError(
                    f"which nsqds there are for rows with a dedup_id is uncertain: {'; '.join(reasons)}"
                )
            reasons += [f"{address} lists no nsqd" for address in listed]
            raise SourceError(f"no nsqd was found: {'; '.join(reasons)}")
        time.sleep(_REST_S)


def _nodes(node: NodeConnection) -> list[str]:
    return node.get_json("/nodes", [], _addresses)


def _addresses(answer: object) -> list[str]:
    producers = answer["producers"] if isinstance(answer, dict) else None
    if not isinstance(producers, list):
        raise TypeError("producers is not a list")
    return [join_host_port(one["broadcast_address"], one["http_port"]) for one in producers]
