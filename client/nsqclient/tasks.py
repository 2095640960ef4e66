"""Tasks that somebody owns, who says so when one of them ends by a mistake."""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

from nsqclient.requests import Confirmation
from nsqclient.wire.errors import ProtocolError
from nsqclient.wire.frames import OK

log = logging.getLogger("nsqclient")

R = TypeVar("R")


class Tasks:
    """Those of one owner, who ends them all."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, R], name: str) -> asyncio.Task[R]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def spawn_quietly(self, work: Awaitable[None], name: str) -> Confirmation:
        """The outcome of something that nobody may wait for."""

        async def outcome() -> bytes:
            await work
            return OK

        task = asyncio.create_task(outcome(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def end(self) -> None:
        """Cancel them, and wait until they are gone."""
        await end(self._tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        # A connection that failed to open is told to those who wait for it.
        if error is not None and not isinstance(error, OSError | ProtocolError):
            log.critical("%s ended", task.get_name(), exc_info=error)


def report(task: asyncio.Task[Any]) -> None:
    """Say so at once when a task that should run forever ends by a mistake; a callback of the task."""
    if not task.cancelled() and (error := task.exception()):
        log.critical("%s ended", task.get_name(), exc_info=error)


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel them, and wait until they are gone."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
