"""Measures nsqadmin with stubs of nsqd and nsqlookupd that only answer HTTP."""

import asyncio
import time
from dataclasses import replace

from bench.fleet_checks.process import Process, ask
from bench.fleet_checks.real import CHANNELS
from bench.fleet_checks.rows import Row
from bench.fleet_model import Constants, Fleet, costs
from bench.stub_cluster import Size, StubCluster


async def measure_admin(nsqds: int, topics: int, seconds: float) -> dict[str, float]:
    cluster = StubCluster(Size(nsqds, topics, CHANNELS, nsqds), 1)
    await cluster.start()
    admin = Process(
        "nsqadmin", f"--lookupd-http-address=127.0.0.1:{cluster.lookupd_ports[0]}", listeners=("http",)
    )
    try:
        await asyncio.to_thread(admin.wait)
        empty = admin.memory_mb()

        def polls() -> int:
            return sum(len(node.asked) for node in cluster.nodes)

        async def watch(until: float, enough: int) -> None:
            """Request pages as a viewer does, so that nsqadmin asks the cluster as often as it may."""
            while time.monotonic() < until and polls() < enough:
                await asyncio.to_thread(ask, admin.address("http"), "/api/topics")
                await asyncio.sleep(2)

        await watch(time.monotonic() + 60, 2 * nsqds)
        before, asked, began = admin.cpu_s(), polls(), time.monotonic()
        await watch(began + seconds, 1 << 30)
        spent, took, asked = admin.cpu_s() - before, time.monotonic() - began, polls() - asked
        return {
            "empty": empty,
            "nsqadmin, MB": admin.memory_mb(),
            "nsqadmin, ms of CPU for each nsqd it asks": spent / max(1, asked) * 1e3,
            "nsqadmin, processors": spent / took,
        }
    finally:
        await asyncio.to_thread(admin.stop)
        await cluster.stop()


def from_admin(c: Constants, small: dict[str, float], wide: dict[str, float]) -> Constants:
    """Return constants; *small* and *wide* are 100 nsqd with 10 and with 50 topics."""
    cpu = "nsqadmin, ms of CPU for each nsqd it asks"
    more = 40 * CHANNELS
    per_channel_us = max(0.0, (wide[cpu] - small[cpu]) * 1e3 / more)
    per_channel = max(0.0, (wide["nsqadmin, MB"] - small["nsqadmin, MB"]) * 1e6 / (100 * more))
    grown = (small["nsqadmin, MB"] - small["empty"]) * 1e6 / 100
    return replace(
        c,
        admin_base_mb=small["empty"],
        poll_channel_us=per_channel_us,
        poll_us=small[cpu] * 1e3 - 10 * CHANNELS * per_channel_us,
        admin_channel_bytes=per_channel,
        admin_node_kb=max(0.0, grown - 10 * CHANNELS * per_channel) / 1e3,
    )


def check_admin(nsqds: int, seconds: float) -> tuple[Constants, list[Row]]:
    """Return constants from small fleets, and their predictions for *nsqds* beside the measurements."""
    few, many = (asyncio.run(measure_admin(100, topics, seconds)) for topics in (10, 50))
    c = from_admin(Constants(), few, many)
    fleet = Fleet(nsqds, topics=20, channels=CHANNELS, lookupds=1)
    found, said = asyncio.run(measure_admin(nsqds, 20, seconds)), costs(fleet, c)
    predicted = {
        "nsqadmin, MB": said.admin_mb,
        "nsqadmin, ms of CPU for each nsqd it asks": (c.poll_us + c.poll_channel_us * 20 * CHANNELS) / 1e3,
    }
    return c, [Row(what, value, found[what]) for what, value in predicted.items()]
