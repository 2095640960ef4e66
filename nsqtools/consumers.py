"""Consumers of a command: started together, stopped together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from nsqclient import Consumer, ProtocolError
from nsqtools.process import Failed

# How long the handlers have to finish what is here when the command is stopped.
DRAIN_SECONDS: Final = 30.0


@asynccontextmanager
async def running(*consumers: Consumer) -> AsyncIterator[None]:
    """Have consumers read within a block; at its end they take no more and finish what is here.

    An nsqd that was named and cannot be reached raises Failed. When the block raises, nothing is waited for.
    """
    drain_seconds = 0.0
    try:
        for consumer in consumers:
            await start(consumer)
        yield
        drain_seconds = DRAIN_SECONDS
    finally:
        await asyncio.gather(*(consumer.close(drain_seconds) for consumer in consumers))


async def start(consumer: Consumer) -> None:
    try:
        await consumer.start()
    except (OSError, ProtocolError, ValueError) as error:
        raise Failed(f"ERROR: [{consumer.topic}/{consumer.channel}] {error}") from error
