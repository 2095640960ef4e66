"""A thread for calls that may block forever; the process can end without waiting for it."""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class BlockingThread:
    """Runs one call after another, so that a pipe without a reader or writer cannot block the event loop."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, call: Callable[[], T]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put((call, answer))
        return await answer

    def _work(self) -> None:
        while True:
            call, answer = self._calls.get()
            result: Any = None
            failure: BaseException | None = None
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - the caller of run() gets it
                failure = error
            with suppress(RuntimeError):  # the event loop is closed, and no task waits
                answer.get_loop().call_soon_threadsafe(_set_outcome, answer, result, failure)


def _set_outcome(answer: "asyncio.Future[Any]", result: object, failure: BaseException | None) -> None:
    if answer.done():
        return
    if failure is None:
        answer.set_result(result)
    else:
        answer.set_exception(failure)
