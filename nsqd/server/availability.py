"""Whether this node takes publishes: the answer of /ready, and a report to nsqlookupd for producers."""

import asyncio
from typing import Final

from nsqcore.lookup_protocol import REPLICAS_MISSING
from nsqd.engine.broker import Broker
from nsqd.server.health import Health
from nsqd.server.lookup.peer import LookupPeers
from nsqd.server.replication.service import Replication

# How often the state is checked. Until nsqlookupd knows of a change, this node refuses producers and they
# query again.
CHECK_INTERVAL_S: Final = 0.5


class Availability:
    """See the module."""

    def __init__(self, broker: Broker, health: Health, replication: Replication) -> None:
        self._broker = broker
        self._health = health
        self._replication = replication

    def obstacle(self) -> tuple[str, str]:
        """Why no publishes are taken: a word for nsqlookupd, and the reason; both empty when they are."""
        if self._broker.leaving:
            return "draining", "draining"
        if not self._health.ok:
            return "unhealthy", self._health.reason
        refusal = self._replication.primary.refusal()
        return (REPLICAS_MISSING, refusal) if refusal else ("", "")

    async def report(self, lookups: LookupPeers) -> None:
        """Report the state to all *lookups* every half second, forever."""
        while True:
            lookups.set_obstacle(self.obstacle()[0])
            await asyncio.sleep(CHECK_INTERVAL_S)
