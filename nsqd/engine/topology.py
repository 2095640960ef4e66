"""Topology-aware consumption: how near a client is to this nsqd. Pure."""

from typing import Final

from nsqclient.wire.identify import Identity
from nsqd.engine.limits import Limits

SAME_ZONE: Final = 0
SAME_REGION: Final = 1
ELSEWHERE: Final = 2


def nearness(limits: Limits, identity: Identity) -> int:
    """Compare what the client says of its place with what this nsqd was told of its own.

    An nsqd that was told nothing is near nobody, and a client that says nothing is near to no nsqd.
    """
    if limits.topology_zone and identity.topology_zone == limits.topology_zone:
        return SAME_ZONE
    if limits.topology_region and identity.topology_region == limits.topology_region:
        return SAME_REGION
    return ELSEWHERE
