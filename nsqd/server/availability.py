"""Telling nsqlookupd whether publishes are taken here, so that producers go elsewhere when not."""

import asyncio
from typing import Final

from nsqd.engine.broker import Broker
from nsqd.server.health import Health
from nsqd.server.lookup.peer import LookupPeers

# How late a producer that is looking for an nsqd may learn of it; until then it is refused and looks again.
LOOK_S: Final = 0.5


class Availability:
    """Watches what a publish depends on."""

    def __init__(self, broker: Broker, health: Health, lookups: LookupPeers) -> None:
        self._broker = broker
        self._health = health
        self._lookups = lookups

    def obstacle(self) -> str:
        """Why no publish is taken, in one word; empty when they are."""
        if self._broker.draining:
            return "draining"
        return "" if self._health.ok else "unhealthy"

    async def watch(self) -> None:
        """Tell every change, forever."""
        while True:
            self._lookups.set_obstacle(self.obstacle())
            await asyncio.sleep(LOOK_S)
