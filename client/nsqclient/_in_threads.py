"""Handlers in threads: they take messages while some wait, and their answers go to the event loop."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from types import CoroutineType
from typing import Any, TypeVar

from nsqclient._jobs import Decode, Job
from nsqclient._message import Message, Source
from nsqclient._thread_safe import ThreadSafe, working_for
from nsqclient._threads import Mailbox
from nsqclient._verdicts import Verdicts, requeue_all

R = TypeVar("R")


class DaemonThreads:
    """Up to *most* threads, which the end of the program does not wait for: a handler may hang.

    It waits for those of a ThreadPoolExecutor, also after shutdown().
    """

    def __init__(self, most: int, name: str) -> None:
        self._max_threads = most
        self._name = name
        self._threads = 0
        self._free = threading.Semaphore(0)  # threads that have nothing to do
        self._calls: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[object, ...]] | None]
        self._calls = SimpleQueue()

    def run(self, function: Callable[..., R], *arguments: object) -> asyncio.Future[R]:
        """Call *function* in the next thread that is free; only the event loop calls this."""
        outcome: Future[R] = Future()
        self._calls.put((outcome, function, arguments))
        if not self._free.acquire(blocking=False) and self._threads < self._max_threads:
            threading.Thread(target=self._work, name=f"{self._name}_{self._threads}", daemon=True).start()
            self._threads += 1
        return asyncio.wrap_future(outcome)

    def stop(self) -> None:
        """End the threads when they have returned from what they do."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            _run(*call)
            del call  # an idle thread references no messages
            self._free.release()


def _run(outcome: Future[Any], function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
    if outcome.set_running_or_notify_cancel():
        try:
            outcome.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001 - it is raised where the outcome is awaited
            outcome.set_exception(error)
            del outcome  # the error's frame would retain the messages until a garbage collection


class HandlerThreads:
    """The threads of one job of *owner*."""

    def __init__(self, owner: object, job: Job, name: str) -> None:
        self._owner = owner
        self._handler: Callable[[Any], object] = job.handler
        self._mailbox = Mailbox(asyncio.get_running_loop())
        self._pool = DaemonThreads(job.concurrency, name)

    def stop(self) -> None:
        self._pool.stop()

    async def call(self, messages: Any) -> object:
        """Call the handler once, with a message or a batch."""
        for message in messages if isinstance(messages, list) else [messages]:
            message._source = ThreadSafe(message._source, self._mailbox)
        return await self._pool.run(self._called, messages)

    def _called(self, messages: Any) -> object:
        with working_for(self._owner):
            try:
                return _result(self._handler, messages)
            except Exception:
                raise
            except BaseException as error:
                # In a thread sys.exit() does not end the program; its exception would end the event loop.
                raise RuntimeError(f"the handler raised {error!r}") from error


class HandlerRun:
    """A thread that handles one message after the other without going back to the event loop for each.

    A round trip to it costs ten times as much as a message. It ends when the loop has to decide: no message
    waits, a message was delivered too often, or handling has ended.
    """

    def __init__(
        self,
        threads: HandlerThreads,
        waiting: "deque[Message[Any]]",
        verdicts: Verdicts,
        decode: Decode[Any] | None,
        *,
        auto_answer: bool,
    ) -> None:
        self._threads = threads
        self._waiting = waiting
        self._verdicts = verdicts
        self._decode = decode
        self._auto_answer = auto_answer
        self._in_hand: list[Message[Any]] = []
        self._ended = False

    async def run(self) -> Message[Any] | None:
        """Handle the messages that wait; returns one that was delivered too often, or None."""
        threads = self._threads
        try:
            return await threads._pool.run(self._next_message)
        except asyncio.CancelledError:
            self._ended = True
            requeue_all(self._in_hand)
            raise

    def _next_message(self) -> Message[Any] | None:
        with working_for(self._threads._owner):
            try:
                return self._handle_all()
            finally:
                self._in_hand = []

    def _handle_all(self) -> Message[Any] | None:
        waiting, verdicts, decode = self._waiting, self._verdicts, self._decode
        handler, mailbox = self._threads._handler, self._threads._mailbox
        source: Source | None = None
        safe: ThreadSafe | None = None
        while not self._ended:
            try:
                message = waiting.popleft()
            except IndexError:
                return None
            if message.attempts > verdicts.max_attempts:
                return message
            if safe is None or message._source is not source:
                source = message._source
                safe = ThreadSafe(source, mailbox)
            message._source = safe
            self._in_hand = [message]
            if decode is not None:
                try:
                    message._value = decode(message.body)
                except Exception as error:  # noqa: BLE001 - other messages continue whatever it raises
                    mailbox.post(verdicts.undecodable, message, error)
                    continue
            try:
                result = _result(handler, message)
                if result is not None:
                    verdicts.returned(handler, result)
                if self._auto_answer and not message.answered:
                    message.finish()
            except BaseException as error:  # noqa: BLE001 - sys.exit() too: in a thread it ends no program
                mailbox.post(verdicts.failed, [message], error)
        return None


def _result(handler: Callable[[Any], object], messages: Any) -> object:
    result = handler(messages)
    if isinstance(result, CoroutineType):
        result.close()
        raise TypeError(f"{handler!r} returned a coroutine: a thread does not run it")
    return result
