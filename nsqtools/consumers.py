"""The consumers of a command, which are started and stopped together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from nsqclient import Consumer, ProtocolError
from nsqtools.process import Failed

# How long handlers may take to finish the messages received when the command is stopped.
DRAIN_SECONDS: Final = 30.0


@asynccontextmanager
async def running(*consumers: Consumer) -> AsyncIterator[None]:
    """Let consumers read within a block; at its end they take no more messages and finish those received.

    Raises Failed when none of the given nsqd can be reached. When the block raises, it does not wait.
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
