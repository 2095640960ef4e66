"""Tasks with an owner; a task that ends with an unexpected error is logged."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, TypeAlias, TypeVar

from nsqclient.wire.errors import ProtocolError

log = logging.getLogger("nsqclient")

R = TypeVar("R")
Errors: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]


class Tasks:
    """The tasks of one owner, which ends them all together."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(
        self, work: Coroutine[Any, Any, R], name: str, expected: Errors = (OSError, ProtocolError)
    ) -> asyncio.Task[R]:
        """*expected* errors are not logged: that of a failed connection goes to those that wait for it."""
        task = spawn(work, name, expected)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def end(self) -> None:
        """Cancel the tasks, and wait until they have ended."""
        await end(self._tasks)


def spawn(work: Coroutine[Any, Any, R], name: str, expected: Errors = ()) -> asyncio.Task[R]:
    """A task whose error is logged when it ends with one, unless it is *expected*."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(partial(_report, expected))
    return task


def _report(expected: Errors, task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) and not isinstance(error, expected):
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

    The cancellations *before* do not count: code that it called may have swallowed one.
    """
    return cancellations() > before
