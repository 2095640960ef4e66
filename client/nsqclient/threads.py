"""An event loop in a thread of its own, and the way of other threads to it."""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from nsqclient.errors import ClosedError

R = TypeVar("R")


class Generation:
    """Counts the forks of this process: in a child the threads of its parent do not exist."""

    def __init__(self) -> None:
        self.number = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.number += 1


generation: Final = Generation()


class LoopThread:
    """An event loop in a thread; uvloop's where that is installed."""

    def __init__(self, name: str) -> None:
        self.loop = _new_event_loop()
        self._generation = generation.number
        # A program that forgets to close must still be able to end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the code that asks runs on this event loop."""
        return threading.current_thread() is self._thread

    @property
    def is_inherited(self) -> bool:
        """Whether it was started by the parent process, and is not there in this one."""
        return self._generation != generation.number

    def call(self, work: Coroutine[Any, Any, R], timeout: float | None = None) -> R:
        """Run *work* on the loop and wait for its result, *timeout* seconds at most."""
        if self.is_current:
            work.close()
            raise RuntimeError("this call would wait for itself: it was made on the event loop of the client")
        if self.is_inherited:
            work.close()
            raise RuntimeError("it was started before this process was forked; make it in the child process")
        if self.loop.is_closed():
            work.close()
            raise ClosedError("it is closed")
        running = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return running.result(timeout)
        except BaseException:
            running.cancel()
            raise

    def stop(self) -> None:
        if self.is_inherited:
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()


class Mailbox:
    """Has calls of other threads made on an event loop; many of one moment wake it once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._is_woken = False

    def post(self, callback: Callable[..., object], *arguments: object) -> None:
        self._calls.append((callback, arguments))
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        # Lowered first: what is posted from now on wakes the loop again.
        self._is_woken = False
        calls = self._calls
        while calls:
            callback, arguments = calls.popleft()
            callback(*arguments)


class PublishOutcome(Future[None]):
    """What becomes of one publish, for another thread; the connection answers it as it answers any other."""

    def set_result(self, result: object) -> None:
        del result  # nsqd says OK
        # Whoever published may have cancelled it meanwhile.
        if self.set_running_or_notify_cancel():
            super().set_result(None)

    def set_exception(self, exception: BaseException | None) -> None:
        if self.set_running_or_notify_cancel():
            super().set_exception(exception)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    if find_spec("uvloop") is not None:
        loop: asyncio.AbstractEventLoop = import_module("uvloop").new_event_loop()
        return loop
    return asyncio.new_event_loop()
