"""An event loop in a thread of its own, and how other threads reach it."""

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from concurrent.futures._base import FINISHED, PENDING, RUNNING
from contextlib import suppress
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, signature
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from nsqclient._errors import ClosedError
from nsqclient._tasks import end

log = logging.getLogger("nsqclient")

P = ParamSpec("P")
R = TypeVar("R")


class Generation:
    """Counts the forks of this process: in a child the threads of its parent do not exist.

    So no thread would release a lock that one of them held, and a child has its own locks.
    """

    def __init__(self) -> None:
        self.number = -1
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self.number += 1
        self.touching = threading.Lock()  # held for a moment while an outcome is set, or first waited for
        self.adopting = threading.Lock()  # held while an object of the parent is set up again


generation: Final = Generation()


class LoopThread:
    """An event loop in a thread; that of uvloop if installed."""

    def __init__(self, name: str) -> None:
        self.loop = _new_event_loop()
        self._generation = generation.number
        # Reentrant, because the handler of a signal may interrupt a call and make another.
        self._ending = threading.RLock()
        self._ended = False  # takes no more calls
        # A program that forgets to close must still be able to end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this event loop."""
        return threading.current_thread() is self._thread

    @property
    def is_inherited(self) -> bool:
        """Whether the thread was started by the parent process, so that it does not exist in this one."""
        return self._generation != generation.number

    def check_caller(self) -> None:
        """Raise RuntimeError on this event loop, which cannot wait for itself."""
        if self.is_current:
            raise RuntimeError("this call would wait for itself: it was made on the event loop of the client")

    def call(self, work: Coroutine[Any, Any, R], timeout: float | None = None) -> R:
        """Run *work* on the loop and wait for its result, at most *timeout* seconds."""
        try:
            self.check_caller()
            if self.is_inherited:
                raise RuntimeError(
                    "it was started before this process was forked; make it in the child process"
                )
            with self._ending:
                if self._ended:
                    raise ClosedError("it is closed")
                running = asyncio.run_coroutine_threadsafe(work, self.loop)
        except BaseException:
            work.close()
            raise
        try:
            return running.result(timeout)
        except CancelledError:
            if self._ended:
                raise ClosedError("it is closed") from None
            raise
        except BaseException:
            running.cancel()
            raise

    def stop(self) -> None:
        if self.is_inherited:
            return
        with suppress(RuntimeError):  # it was notified before, and the loop is closed
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            with self._ending:
                self._ended = True
            self.loop.run_until_complete(self._end_tasks())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    async def _end_tasks(self) -> None:
        """End the calls that other threads still wait for."""
        await asyncio.sleep(0)  # those that were made last have no task yet
        await end(asyncio.all_tasks() - {asyncio.current_task()})


# A class whose calls block has an asynchronous object, ``_here``, on the loop of its ``_thread``. Its methods
# that only wait for those of that object are made by the functions below, which keep signature and docstring.


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """The same method, whose result the calling thread waits for."""

    @wraps(method)
    def call(face: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        work = method(face._here, *args, **kwargs)  # first, because a forked process makes another thread
        result: R = face._thread.call(work)
        return result

    return call


def on_loop(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Like :func:`blocking`, for a plain method: only the loop may change its objects."""

    @wraps(method)
    def call(face: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        here = face._here

        async def called() -> R:
            return method(here, *args, **kwargs)

        result: R = face._thread.call(called())
        return result

    return call


def same_arguments(
    model: Callable[P, object],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give a constructor that passes its arguments on the signature of the class that gets them."""

    def decorate(constructor: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        itself = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
        arguments = signature(model)
        constructor.__signature__ = arguments.replace(  # type: ignore[attr-defined]
            parameters=[itself, *arguments.parameters.values()]
        )
        return constructor

    return decorate


class Mailbox:
    """Makes the calls of other threads on an event loop; many calls at the same moment wake it once."""

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
        # Cleared first, so that calls posted from now on wake the loop again.
        self._is_woken = False
        calls = self._calls
        while calls:
            callback, arguments = calls.popleft()
            try:
                callback(*arguments)
            except Exception:
                # The calls behind it are answers to other messages.
                log.critical("%r, called for another thread, failed", callback, exc_info=True)


class PublishOutcome(Future[None]):
    """The outcome of one publish for another thread; the connection sets it like any other answer.

    Most outcomes are set before a caller waits for them. The condition variable of a future costs more than
    the rest of a publish. So it is made only for an outcome with a waiter, a callback or a cancellation. With
    a plain future, ``submit`` takes four times as much CPU (11 us instead of 2.7).
    """

    # The state of an unused future; attributes of an instance override it.
    _state = PENDING
    _result: None = None
    _exception: BaseException | None = None
    _condition: threading.Condition
    _waiters: list[Any]
    _done_callbacks: list[Any]

    def __init__(self) -> None:
        """Sets nothing: the class attributes are the state of a new outcome."""

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_WAITING:
            raise AttributeError(f"a publish has no {name!r}")
        self.prepare_to_wait()
        return self.__dict__[name]

    def prepare_to_wait(self) -> None:
        """Make the attributes that waiting needs."""
        with generation.touching:
            if "_condition" not in self.__dict__:
                self._waiters, self._done_callbacks = [], []
                self._condition = threading.Condition()

    def set_result(self, result: object) -> None:
        del result  # it is OK
        if self._end(None):
            return
        # The publisher may have cancelled it before.
        if self.set_running_or_notify_cancel():
            super().set_result(None)

    def set_exception(self, exception: BaseException | None) -> None:
        if self._end(exception):
            return
        if self.set_running_or_notify_cancel():
            super().set_exception(exception)

    def _end(self, exception: BaseException | None) -> bool:
        """Set the outcome when no thread waits; False when a thread may wait and has to be woken."""
        with generation.touching:
            if "_condition" in self.__dict__:
                return False
            self._exception = exception
            self._state = FINISHED
            return True

    def done(self) -> bool:
        return self._state not in {PENDING, RUNNING}

    def result(self, timeout: float | None = None) -> None:
        if self._state != FINISHED or self._exception is not None:
            super().result(timeout)


_OF_WAITING: Final = frozenset(("_condition", "_waiters", "_done_callbacks"))


def _new_event_loop() -> asyncio.AbstractEventLoop:
    if find_spec("uvloop") is not None:
        loop: asyncio.AbstractEventLoop = import_module("uvloop").new_event_loop()
        return loop
    return asyncio.new_event_loop()
