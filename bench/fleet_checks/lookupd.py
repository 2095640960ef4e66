"""Measures nsqlookupd with stubs of nsqd that only register and ping."""

import asyncio
import time
from dataclasses import replace
from typing import Final

from bench.fleet import SimulatedNsqd, announcement
from bench.fleet_checks.process import Process, ask
from bench.fleet_checks.real import CHANNELS
from bench.fleet_checks.rows import Row
from bench.fleet_model import Constants, Fleet, costs, lookup_us

# Other work of the machine only adds to a batch's processor time, so the least of several batches counts.
BATCHES: Final = 8
LOOKUPS: Final = 60
PINGS: Final = 500
# PINGs come one by one, as from a thousand nsqd in 15 s, only faster. PINGs that come at once would be read
# together.
PING_APART_S: Final = 0.002


class StubFleet:
    """One nsqlookupd and a number of stub nsqd, each with the same number of topics."""

    def __init__(self, nsqds: int, topics: int) -> None:
        self._topics = topics
        self._lookupd = Process("nsqlookupd")
        self._nodes: list[SimulatedNsqd] = []
        self._nsqds = nsqds
        self.found: dict[str, float] = {}
        self._pinged: list[float] = []
        self._looked: list[float] = []

    async def start(self) -> None:
        """Register all nsqd."""
        await asyncio.to_thread(self._lookupd.wait)
        self.found["empty"] = self._lookupd.memory_mb()
        batches, sizes = announcement(self._topics, CHANNELS)
        began = self._lookupd.cpu_s()
        loop = asyncio.get_running_loop()
        self._nodes = [SimulatedNsqd(number, batches, sizes) for number in range(self._nsqds)]
        for node in self._nodes:
            await loop.create_connection(lambda node=node: node, "127.0.0.1", self._lookupd.ports["tcp"])  # type: ignore[misc]
        await asyncio.gather(*(node.announced for node in self._nodes))
        self.found["all register, s of CPU"] = self._lookupd.cpu_s() - began

    async def look_up(self) -> None:
        began = self._lookupd.cpu_s()
        for number in range(LOOKUPS):
            await self._ask(f"/lookup?topic=topic-{number % self._topics:04}")
        self._looked.append((self._lookupd.cpu_s() - began) / LOOKUPS * 1e6)

    async def ping(self) -> None:
        """Measure a fixed number of PINGs, without the work that nsqlookupd does by itself meanwhile."""
        began, at = self._lookupd.cpu_s(), time.monotonic()
        await asyncio.sleep(0.5)
        idle = (self._lookupd.cpu_s() - began) / (time.monotonic() - at)
        began, at = self._lookupd.cpu_s(), time.monotonic()
        for number in range(PINGS):
            self._nodes[number % len(self._nodes)].ping()
            await asyncio.sleep(PING_APART_S)
        spent = self._lookupd.cpu_s() - began - idle * (time.monotonic() - at)
        self._pinged.append(spent / PINGS * 1e6)

    async def measured(self) -> dict[str, float]:
        body, listed = await self._ask("/lookup?topic=topic-0000"), await self._ask("/nodes")
        return self.found | {
            "nsqlookupd, MB": self._lookupd.memory_mb(),
            "a PING, us of CPU": min(self._pinged),
            "a /lookup, us of CPU": min(self._looked),
            "an answer to /lookup, kB": len(body) / 1e3,
            "an answer to /nodes, kB": len(listed) / 1e3,
        }

    async def stop(self) -> None:
        for node in self._nodes:
            node.close()
        await asyncio.to_thread(self._lookupd.stop)

    async def _ask(self, path: str) -> bytes:
        _, body = await asyncio.to_thread(ask, self._lookupd.address("http"), path)
        return body


async def measure_lookupds(*sizes: tuple[int, int]) -> list[dict[str, float]]:
    """Measure fleets of these numbers of nsqd and topics in turns, because the machine's speed varies."""
    fleets = [StubFleet(*size) for size in sizes]
    try:
        for fleet in fleets:
            await fleet.start()
        for _ in range(BATCHES):
            for fleet in fleets:
                await fleet.ping()
                await fleet.look_up()
        return [await fleet.measured() for fleet in fleets]
    finally:
        for fleet in fleets:
            await fleet.stop()


def from_lookupd(
    c: Constants, small: dict[str, float], wide: dict[str, float], more: dict[str, float]
) -> Constants:
    """Return constants; *small* and *wide* are 100 nsqd with 50 and 200 topics, *more* 600 with 10."""
    kinds = 1 + CHANNELS
    per_registration = (wide["nsqlookupd, MB"] - small["nsqlookupd, MB"]) * 1e6 / (100 * 150 * kinds)
    node_bytes = small["an answer to /lookup, kB"] * 1e3 / 100
    per_node_us = max(0.0, (more["a /lookup, us of CPU"] - small["a /lookup, us of CPU"]) / 500)
    grown = (small["nsqlookupd, MB"] - small["empty"]) * 1e6 / 100
    per_topic = (wide["an answer to /nodes, kB"] - small["an answer to /nodes, kB"]) * 1e3 / (100 * 150)
    return replace(
        c,
        lookupd_base_mb=small["empty"],
        lookupd_registration_bytes=per_registration,
        lookupd_node_kb=max(0.0, grown - per_registration * 50 * kinds) / 1e3,
        register_us=wide["all register, s of CPU"] * 1e6 / (100 * 200 * kinds),
        # A PING costs the same in each fleet, so the least value excludes the machine's other work.
        ping_us=min(found["a PING, us of CPU"] for found in (small, wide, more)),
        lookup_node_us=per_node_us,
        lookup_us=max(0.0, small["a /lookup, us of CPU"] - 100 * per_node_us),
        lookup_node_bytes=node_bytes,
        nodes_topic_bytes=per_topic,
    )


def check_lookupd(nsqds: int) -> tuple[Constants, list[Row]]:
    """Return constants from small fleets, and their predictions for *nsqds* beside the measurements."""
    fleets = ((100, 50), (100, 200), (600, 10), (nsqds, 200))
    *few, found = asyncio.run(measure_lookupds(*fleets))
    c = from_lookupd(Constants(), *few)
    said = costs(Fleet(nsqds, topics=200, channels=CHANNELS, lookupds=1), c)
    predicted = {
        "nsqlookupd, MB": said.lookupd_mb,
        "all register, s of CPU": said.registration_s,
        "a PING, us of CPU": c.ping_us,
        "a /lookup, us of CPU": lookup_us(c, nsqds),
        "an answer to /lookup, kB": said.lookup_kb,
        "an answer to /nodes, kB": said.nodes_mb * 1e3,
    }
    return c, [Row(what, value, found[what]) for what, value in predicted.items()]
