"""The end of a consumer: nsqd sends no more, and handlers have some time for the messages received."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from nsqclient._connection import Connection
from nsqclient._subscriptions import until
from nsqclient._tasks import end
from nsqclient.wire import commands

log = logging.getLogger("nsqclient")

# How long even a hurried close waits for nsqd to confirm that it sends no more.
FAREWELL_SECONDS: Final = 1.0
# An nsqd that does not confirm it in this time does not answer at all.
MAX_FAREWELL_SECONDS: Final = 5.0


class LastWait:
    """Waits until the connections of one consumer have nothing in flight; *name* is for the log."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._hurried = asyncio.Event()

    def hurry(self) -> None:
        """Stop waiting for the handlers."""
        self._hurried.set()

    async def wait(
        self,
        connections: Sequence[Connection],
        seconds: float,
        *,
        leaving: Iterable[Connection],
        all_received: Callable[[], None],
    ) -> None:
        """Wait at most *seconds*, and log how many messages were not handled by then.

        Those that are *leaving* already have been told to send no more, which nsqd accepts once.
        *all_received* is called when no more messages come, and time is left to handle those that are here.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        # CLS first, so that requeued messages are not sent here again. Its answer follows the last message.
        farewells = [connection.request(commands.CLS) for connection in connections]
        if farewells:
            await asyncio.wait(farewells, timeout=min(max(seconds, FAREWELL_SECONDS), MAX_FAREWELL_SECONDS))
        if asyncio.get_running_loop().time() < deadline:
            all_received()
        connections = [*connections, *leaving]
        waits = [asyncio.create_task(until(connection.idle)) for connection in connections]
        late = await self._until_deadline(waits, deadline)
        in_flight = sum(one.in_flight for one in connections if not one.is_closed)
        if late and in_flight:
            messages = "message" if in_flight == 1 else "messages"
            log.warning("%s: %d %s not handled in time", self._name, in_flight, messages)

    async def _until_deadline(self, waits: list[asyncio.Task[None]], deadline: float) -> bool:
        """Return whether some of *waits* have not ended."""
        loop = asyncio.get_running_loop()
        hurried = asyncio.create_task(until(self._hurried))
        try:
            pending = set(waits)
            while pending and not hurried.done() and (left := deadline - loop.time()) > 0:
                done, _ = await asyncio.wait(
                    {*pending, hurried}, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                pending -= done
        finally:
            late = [task for task in waits if not task.done()]
            await end([*late, hurried])
        return bool(late)
