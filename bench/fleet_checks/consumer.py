"""Measures what a consumer's connections cost its process.

A consumer of a few nsqd takes less than a megabyte, which a process may already have free. So one process
opens enough consumers for CONNECTIONS connections, after a first consumer that pays all one-time costs, and
the total cost is divided by the number of consumers.
"""

import asyncio
import gc
import json
import math
import time
from contextlib import AsyncExitStack
from typing import Final

from bench.fleet_checks.process import memory_mb, topic_name
from nsqclient import Config, Consumer

CONNECTIONS: Final = 1000


async def consume(lookupd: str, nsqds: int, topics: int) -> None:
    """Read with many consumers, print what each of them has cost, and keep running."""
    many = math.ceil(CONNECTIONS / nsqds)
    async with AsyncExitStack() as stack:
        await _open(stack, lookupd, nsqds, 0)
        gc.collect()
        before = time.process_time(), memory_mb()
        for number in range(many):
            await _open(stack, lookupd, nsqds, number % topics)
        cpu_s = time.process_time() - before[0]
        gc.collect()
        told = {
            "connections": nsqds,
            "cpu_s": cpu_s / many,
            "memory_mb": (memory_mb() - before[1]) / many,
        }
        print(json.dumps(told), flush=True)
        await asyncio.sleep(600)


async def _open(stack: AsyncExitStack, lookupd: str, nsqds: int, topic: int) -> None:
    consumer = Consumer(
        topic_name(topic),
        "channel-0",
        lambda _: None,
        lookupd_addresses=[lookupd],
        config=Config(max_in_flight=2500),
    )
    await stack.enter_async_context(consumer)
    while consumer.stats.connections < nsqds:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.01)
