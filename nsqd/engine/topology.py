"""Topology-aware consumption: how near a client is to this nsqd. Pure."""

from typing import Final

from nsqd.engine.identity import Identity
from nsqd.engine.limits import Limits

SAME_ZONE: Final = 0
SAME_REGION: Final = 1
ELSEWHERE: Final = 2


def nearness(limits: Limits, identity: Identity) -> int:
    """How near a client is, by its region and zone and those of this nsqd.

    An nsqd that has no zone or region is near nobody, and a client that names none is near no nsqd.
    """
    if limits.topology_zone and identity.topology_zone == limits.topology_zone:
        return SAME_ZONE
    if limits.topology_region and identity.topology_region == limits.topology_region:
        return SAME_REGION
    return ELSEWHERE
