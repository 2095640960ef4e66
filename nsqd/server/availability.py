"""Reports to nsqlookupd whether this node takes publishes, so that producers use other nodes if not."""

import asyncio
from collections.abc import Callable
from typing import Final

from nsqcore.lookup_protocol import REPLICAS_MISSING
from nsqd.engine.broker import Broker
from nsqd.server.health import Health
from nsqd.server.lookup.peer import LookupPeers

# How often the state is checked. Until nsqlookupd knows of a change, this node refuses producers and they
# query again.
CHECK_INTERVAL_S: Final = 0.5


class Availability:
    """Reports to nsqlookupd whether publishes are taken."""

    def __init__(
        self, broker: Broker, health: Health, lookups: LookupPeers, refusal: Callable[[], str]
    ) -> None:
        """*refusal* returns why replicas are missing for all publishes."""
        self._refusal = refusal
        self._broker = broker
        self._health = health
        self._lookups = lookups

    def obstacle(self) -> str:
        """Why no publishes are taken, in one word; empty when they are."""
        if self._broker.leaving:
            return "draining"
        if not self._health.ok:
            return "unhealthy"
        return REPLICAS_MISSING if self._refusal() else ""

    async def watch(self) -> None:
        """Report the state every half second, forever."""
        while True:
            self._lookups.set_obstacle(self.obstacle())
            await asyncio.sleep(CHECK_INTERVAL_S)
