"""Handlers in threads: they take messages while there are some, and their answers go to the event loop."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import CoroutineType
from typing import Any

from nsqclient.jobs import Decode, Job
from nsqclient.message import Message, Outcome, Source
from nsqclient.threads import Mailbox
from nsqclient.verdicts import Verdicts, give_back

# In the thread of a handler: for whom it works.
_working_for = threading.local()


class ThreadSafe:
    """Lets another thread answer the messages of a connection, which belongs to the event loop."""

    def __init__(self, source: Source, mailbox: Mailbox) -> None:
        self.source = source
        self._post = mailbox.post

    @property
    def address(self) -> str:
        return self.source.address

    @property
    def topic(self) -> str:
        return self.source.topic

    @property
    def channel(self) -> str:
        return self.source.channel

    @property
    def is_closed(self) -> bool:
        return self.source.is_closed

    def answer(self, command: bytes, outcome: Outcome) -> None:
        self._post(self.source.answer, command, outcome)

    def touch(self, message_id: bytes) -> None:
        self._post(self.source.touch, message_id)

    def requeue_delay(self, attempts: int) -> float:
        return self.source.requeue_delay(attempts)

    def handling_failed(self, message: Message[Any], error: BaseException) -> None:
        self._post(self.source.handling_failed, message, error)


def base(source: Source) -> Source:
    """The connection itself, where a message was handed to another thread."""
    return source.source if isinstance(source, ThreadSafe) else source


def works_for(owner: object) -> bool:
    """Whether this thread runs a handler of *owner*."""
    return getattr(_working_for, "owner", None) is owner


class HandlerThreads:
    """The threads of one job of *owner*."""

    def __init__(self, owner: object, job: Job, name: str) -> None:
        self._owner = owner
        self._handler: Callable[[Any], object] = job.handler
        self._loop = asyncio.get_running_loop()
        self._mailbox = Mailbox(self._loop)
        self._pool = ThreadPoolExecutor(job.concurrency, thread_name_prefix=name)

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def call(self, messages: Any) -> object:
        """The handler, called once, with a message or a batch."""
        for message in messages if isinstance(messages, list) else [messages]:
            message._source = ThreadSafe(message._source, self._mailbox)
        return await self._loop.run_in_executor(self._pool, self._called, messages)

    def _called(self, messages: Any) -> object:
        _working_for.owner = self._owner
        try:
            return _result(self._handler, messages)
        finally:
            _working_for.owner = None


class HandlerRun:
    """A thread that handles one message after the other without going back to the event loop for each.

    Going there and back costs ten times what a message does. It ends where the loop has to decide: nothing
    waits any more, a message was delivered too often, or handling has ended.
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

    async def go(self) -> Message[Any] | None:
        """Handle what waits; returns a message that was delivered too often, or None."""
        threads = self._threads
        try:
            return await threads._loop.run_in_executor(threads._pool, self._take)
        except asyncio.CancelledError:
            self._ended = True
            give_back(self._in_hand)
            raise

    def _take(self) -> Message[Any] | None:
        _working_for.owner = self._threads._owner
        try:
            return self._handle_all()
        finally:
            self._in_hand = []
            _working_for.owner = None

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
                except Exception as error:  # noqa: BLE001 - whatever a decoder raises, the others go on
                    mailbox.post(verdicts.undecodable, message, error)
                    continue
            try:
                result = _result(handler, message)
                if result is not None:
                    verdicts.returned(handler, result)
                if self._auto_answer and not message.answered:
                    message.finish()
            except Exception as error:  # noqa: BLE001 - whatever a handler raises, the others go on
                mailbox.post(verdicts.failed, [message], error)
        return None


def _result(handler: Callable[[Any], object], messages: Any) -> object:
    result = handler(messages)
    if isinstance(result, CoroutineType):
        result.close()
        raise TypeError(f"{handler!r} returned a coroutine: a thread does not run it")
    return result
