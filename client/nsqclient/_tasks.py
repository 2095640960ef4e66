"""Tasks with an owner; a task that ends with an unexpected error is logged."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from nsqclient.wire.errors import ProtocolError

log = logging.getLogger("nsqclient")

R = TypeVar("R")


class Tasks:
    """The tasks of one owner, which ends them all together."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, R], name: str) -> asyncio.Task[R]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def spawn_quietly(self, work: Coroutine[Any, Any, R], name: str) -> asyncio.Task[R]:
        """Like spawn(), but an error is not logged."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def end(self) -> None:
        """Cancel the tasks, and wait until they have ended."""
        await end(self._tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        # The error of a failed connection goes to those that wait for it.
        if error is not None and not isinstance(error, OSError | ProtocolError):
            log.critical("%s ended", task.get_name(), exc_info=error)


def spawn(work: Coroutine[Any, Any, R], name: str) -> asyncio.Task[R]:
    """A task that should run forever; its error is logged when it ends with one."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.critical("%s ended", task.get_name(), exc_info=error)


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel the tasks, and wait until they have ended."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def cancellations() -> int:
    """How often the running task was cancelled so far."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def is_stopping(before: int = 0) -> bool:
    """Whether the running task was cancelled itself, rather than something it waited for.

    The cancellations *before* do not count: code that it called may have kept one to itself.
    """
    return cancellations() > before
