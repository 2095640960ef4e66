"""Tasks that are to run until somebody ends them."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

log = logging.getLogger("nsqclient")


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
