"""Tasks that have an owner, and threads for work that needs the processor for long."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from nsqcore.process.threads import start_pool

T = TypeVar("T")

# The longest wait of a reader for statistics, at the start and after a change. Missing ones are shown later.
PATIENCE_S: Final = 1.0


class Work:
    """The background tasks of one nsqadmin. A task that fails ends nsqadmin through ``broken``."""

    def __init__(self) -> None:
        # Receives the error of a task that failed.
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[Any]] = set()
        # One thread: parsing competes with the event loop for the processor, but not with other parsing.
        self._thread = start_pool(1, "metrics")
        # A second one, so that readers' requests do not wait for the parsing of statistics.
        self._readers = start_pool(1, "readers")

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def within(self, work: Awaitable[Any], seconds: float = PATIENCE_S) -> None:
        """Wait for *work*, but at most *seconds*; it continues afterwards."""
        task = self.start(_as_coroutine(work), "refresh")
        await asyncio.wait({task}, timeout=seconds)

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run *call*, which needs the processor for long, in a thread, so that the event loop continues."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def for_reader(self, call: Callable[[], T]) -> T:
        """Run *call*, whose reader is waiting, in the readers' thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, call)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._thread.shutdown(cancel_futures=True)
        self._readers.shutdown(cancel_futures=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None or self.broken.done():
            return
        self.broken.set_exception(error)


async def _as_coroutine(work: Awaitable[T]) -> T:
    return await work
