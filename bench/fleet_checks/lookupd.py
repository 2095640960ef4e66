"""nsqlookupd with stubs of nsqd that only register and ping."""

import asyncio
import time
from dataclasses import replace
from typing import Final

from bench.fleet import SimulatedNsqd, announcement
from bench.fleet_checks.process import Process, ask
from bench.fleet_checks.real import CHANNELS
from bench.fleet_checks.rows import Row
from bench.fleet_model import Constants, Fleet, costs, lookup_us

# What else the machine does only adds to the processor time of a batch, so the least of several counts.
BATCHES: Final = 8
LOOKUPS: Final = 60
PING_BATCHES: Final = 4
PINGS: Final = 1000
# One by one, as a thousand nsqd do in 15 s, only faster: of those that come at once many are read at once.
PING_APART_S: Final = 0.002


async def lookups_us(lookupd: Process, topics: int) -> float:
    began = lookupd.cpu_s()
    for number in range(LOOKUPS):
        path = f"/lookup?topic=topic-{number % topics:04}"
        await asyncio.to_thread(ask, lookupd.address("http"), path)
    return (lookupd.cpu_s() - began) / LOOKUPS * 1e6


async def pings_us(lookupd: Process, nodes: list[SimulatedNsqd]) -> float:
    """As many of them whatever the number of nodes, and without what nsqlookupd does by itself meanwhile."""
    began, at = lookupd.cpu_s(), time.monotonic()
    await asyncio.sleep(1.0)
    idle = (lookupd.cpu_s() - began) / (time.monotonic() - at)
    began, at = lookupd.cpu_s(), time.monotonic()
    for number in range(PINGS):
        nodes[number % len(nodes)].ping()
        await asyncio.sleep(PING_APART_S)
    spent = lookupd.cpu_s() - began - idle * (time.monotonic() - at)
    return spent / PINGS * 1e6


async def measure_lookupd(nsqds: int, topics: int) -> dict[str, float]:
    lookupd = Process("nsqlookupd")
    nodes: list[SimulatedNsqd] = []
    try:
        await asyncio.to_thread(lookupd.wait)
        empty = lookupd.memory_mb()
        batches, sizes = announcement(topics, CHANNELS)
        began = lookupd.cpu_s()
        loop = asyncio.get_running_loop()
        nodes = [SimulatedNsqd(number, batches, sizes) for number in range(nsqds)]
        for node in nodes:
            await loop.create_connection(lambda node=node: node, "127.0.0.1", lookupd.ports["tcp"])  # type: ignore[misc]
        await asyncio.gather(*(node.announced for node in nodes))
        registered = lookupd.cpu_s() - began
        pinged = [await pings_us(lookupd, nodes) for _ in range(PING_BATCHES)]
        looked = [await lookups_us(lookupd, topics) for _ in range(BATCHES)]
        _, body = await asyncio.to_thread(ask, lookupd.address("http"), "/lookup?topic=topic-0000")
        _, listed = await asyncio.to_thread(ask, lookupd.address("http"), "/nodes")
        return {
            "empty": empty,
            "nsqlookupd, MB": lookupd.memory_mb(),
            "all register, s of CPU": registered,
            "a PING, us of CPU": min(pinged),
            "a /lookup, us of CPU": min(looked),
            "an answer to /lookup, kB": len(body) / 1e3,
            "an answer to /nodes, kB": len(listed) / 1e3,
        }
    finally:
        for node in nodes:
            node.close()
        await asyncio.to_thread(lookupd.stop)


def from_lookupd(
    c: Constants, small: dict[str, float], wide: dict[str, float], more: dict[str, float]
) -> Constants:
    """*small* and *wide* are 100 nsqd with 50 and 200 topics, *more* 600 with 10."""
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
        ping_us=small["a PING, us of CPU"],
        lookup_node_us=per_node_us,
        lookup_us=max(0.0, small["a /lookup, us of CPU"] - 100 * per_node_us),
        lookup_node_bytes=node_bytes,
        nodes_topic_bytes=per_topic,
    )


def check_lookupd(nsqds: int) -> tuple[Constants, list[Row]]:
    """Constants from small fleets, and what they predict for so many."""
    sizes = ((100, 50), (100, 200), (600, 10))
    c = from_lookupd(Constants(), *(asyncio.run(measure_lookupd(*size)) for size in sizes))
    fleet = Fleet(nsqds, topics=200, channels=CHANNELS, lookupds=1)
    found, said = asyncio.run(measure_lookupd(nsqds, 200)), costs(fleet, c)
    predicted = {
        "nsqlookupd, MB": said.lookupd_mb,
        "all register, s of CPU": said.registration_s,
        "a PING, us of CPU": c.ping_us,
        "a /lookup, us of CPU": lookup_us(c, nsqds),
        "an answer to /lookup, kB": said.lookup_kb,
        "an answer to /nodes, kB": said.nodes_mb * 1e3,
    }
    return c, [Row(what, value, found[what]) for what, value in predicted.items()]
