"""From messages to handlers: who gets which, on the event loop or in threads, one by one or many."""

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import CoroutineType
from typing import Any, Final, TypeAlias

from nsqclient.message import Message, Outcome, Source, T
from nsqclient.middleware import Middleware, around_batch, around_message
from nsqclient.requests import Confirmation
from nsqclient.retry import Retry
from nsqclient.threads import Mailbox

log = logging.getLogger("nsqclient")

Handler: TypeAlias = Callable[[Message[T]], Awaitable[None] | None]
BatchHandler: TypeAlias = Callable[[list[Message[T]]], Awaitable[None] | None]
Decode: TypeAlias = Callable[[bytes], T]

# A plain function that is quick must not keep the event loop from its sockets while messages wait: every
# so many messages the time is looked at, and after so many seconds the others have their turn.
_LOOK_EVERY: Final = 32
_SECONDS_PER_TURN: Final = 0.005

# How long a handler that is cancelled may take to end; one that does not end is left behind.
CANCEL_SECONDS: Final = 1.0

# In the thread of a handler: the consumer it works for.
_working_for = threading.local()


@dataclass(frozen=True, slots=True)
class Job:
    """A handler with how it wants to be called."""

    handler: Callable[[Any], Awaitable[None] | None]
    concurrency: int = 1
    in_threads: bool = False
    batch_size: int = 0  # 0 for one message at a time
    batch_seconds: float = 0

    def __post_init__(self) -> None:
        if not callable(self.handler):
            raise TypeError(f"a handler is called with a message; {self.handler!r} cannot be called")
        if self.in_threads and _is_coroutine_function(self.handler):
            raise TypeError(f"{self.handler!r} is a coroutine function: a thread would not run it")
        if self.concurrency < 1:
            raise ValueError(f"concurrency {self.concurrency} is not positive")
        if self.batch_size < 0 or self.batch_seconds < 0:
            raise ValueError("size and seconds of a batch must not be negative")

    @property
    def demand(self) -> int:
        """How many messages it can have in hand."""
        return self.concurrency * max(1, self.batch_size)


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


class Handling:
    """The messages that wait for a handler, and the tasks that hand them over."""

    def __init__(
        self,
        name: str,
        *,
        retry: Retry,
        auto_answer: bool,
        auto_touch: bool,
        give_up: Handler[Any] | None,
        is_starved: Callable[[], bool],
        bury: Callable[[Message[Any]], Confirmation] | None = None,
        decode: Decode[Any] | None = None,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        """*bury* publishes a message to the dead letters."""
        self._name = name
        self._retry = retry
        self._max_attempts = retry.max_attempts or 1 << 16  # attempts are 16 bits
        self._auto_answer = auto_answer
        self._auto_touch = auto_touch
        self._give_up = give_up
        self._is_starved = is_starved
        self._bury = bury
        self._decode = decode
        self._middlewares = tuple(middlewares)
        self._jobs: list[Job] = []
        self._waiting: deque[Message[Any]] = deque()
        self._hungry: deque[asyncio.Future[None]] = deque()  # tasks that wait for a message
        self._in_hand: set[Message[Any]] = set()  # given to a handler and not answered, for touching
        self._workers: list[asyncio.Task[None]] = []
        self._threads: list[ThreadPoolExecutor] = []
        self._ended = False  # hands nothing out any more

    @property
    def has_jobs(self) -> bool:
        return bool(self._jobs)

    @property
    def demand(self) -> int:
        """How many messages the handlers can have in hand at once."""
        return sum(job.demand for job in self._jobs)

    @property
    def is_called_by_a_handler(self) -> bool:
        """Whether the code that asks runs in one of the handlers."""
        return getattr(_working_for, "handling", None) is self or _current_task() in self._workers

    def add(self, job: Job) -> None:
        if self._workers:
            raise RuntimeError("handlers are added before the consumer is started")
        self._jobs.append(job)

    # --- life

    def start(self) -> None:
        for number, job in enumerate(self._jobs):
            call: Callable[[Any], Awaitable[Any] | None] = job.handler
            if job.in_threads:
                call = self._in_threads(job, number)
            if self._middlewares:
                call = (around_batch if job.batch_size else around_message)(self._middlewares, call)
            for _ in range(job.concurrency):
                work = self._work_in_batches(job, call) if job.batch_size else self._work(call)
                worker = asyncio.create_task(work, name=f"{self._name} handler {number}")
                worker.add_done_callback(_report)
                self._workers.append(worker)

    async def stop(self) -> None:
        """End the handlers; what they have in hand goes back to nsqd."""
        self._ended = True
        workers = [worker for worker in self._workers if not worker.done()]
        for worker in workers:
            worker.cancel()
        if workers:
            _, late = await asyncio.wait(workers, timeout=CANCEL_SECONDS)
            if late:
                log.error("%s: %d handlers do not end when they are cancelled", self._name, len(late))
        for pool in self._threads:
            pool.shutdown(wait=False, cancel_futures=True)

    def give_back(self) -> None:
        """Requeue what no handler has yet, and hand out nothing more."""
        self._ended = True
        while self._waiting:
            message = self._waiting.popleft()
            if not message.answered:
                message.requeue(0)
        while self._hungry:
            _wake(self._hungry.popleft())

    # --- messages

    def receive(self, messages: list[Message[Any]]) -> None:
        if self._ended:
            _requeue(messages)
            return
        self._waiting.extend(messages)
        self._wake_for(len(messages))

    def forget(self, source: Source) -> None:
        """Drop what can no longer be answered: handling it would only make a duplicate."""
        self._waiting = deque(message for message in self._waiting if message._source is not source)

    def held_since(self, latest: float) -> Iterable[Message[Any]]:
        """Those received before this time that wait for a handler, or for the answer of one."""
        self._in_hand.difference_update([one for one in self._in_hand if one.answered or one.is_lost])
        return [one for one in (*self._waiting, *self._in_hand) if one.received_at <= latest]

    async def next(self) -> Message[Any] | None:
        """The next message for who iterates; None when there will be none."""
        while not self._ended:
            if not self._waiting:
                await self._arrival()
                continue
            message = self._waiting.popleft()
            if await self._is_fit(message):
                if self._auto_touch:
                    self._in_hand.add(message)
                return message
        return None

    def _wake_for(self, arrivals: int) -> None:
        for _ in range(min(arrivals, len(self._hungry))):
            _wake(self._hungry.popleft())

    async def _arrival(self) -> None:
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._hungry.append(arrived)
        try:
            await arrived
        except asyncio.CancelledError:
            if arrived.cancelled():
                # It waits no more: a wake-up spent on it would be lost, and a message would lie unhandled.
                if arrived in self._hungry:
                    self._hungry.remove(arrived)
            elif self._hungry:  # woken for a message it cannot take any more
                _wake(self._hungry.popleft())
            raise

    async def _is_fit(self, message: Message[Any]) -> bool:
        """Whether a handler is to see it; otherwise it is dealt with."""
        if message.attempts > self._max_attempts:
            await self._abandon(message)
            return False
        if self._decode is not None:
            try:
                message._value = self._decode(message.body)
            except Exception as error:  # noqa: BLE001 - whatever a decoder raises, the others go on
                self._undecodable(message, error)
                return False
        return True

    # --- one at a time

    async def _work(self, call: Callable[[Any], Awaitable[Any] | None]) -> None:
        loop = asyncio.get_running_loop()
        auto_answer, max_attempts = self._auto_answer, self._max_attempts
        watched, in_hand = self._auto_touch, self._in_hand
        decodes = self._decode is not None
        turn_began = loop.time()
        handled = 0
        while not self._ended:
            if not self._waiting:
                await self._arrival()
                turn_began = loop.time()
                continue
            message = self._waiting.popleft()
            if (decodes or message.attempts > max_attempts) and not await self._is_fit(message):
                continue
            if watched:
                in_hand.add(message)
            try:
                pending = call(message)
                if pending is not None:
                    result = await pending if _is_awaitable(pending) else pending
                    if result is not None:
                        self._returned(call, result)
                if auto_answer and not message.answered:
                    message.finish()
            except asyncio.CancelledError as error:
                if _is_stopping():
                    _requeue([message])
                    raise
                self.failed([message], error)  # something the handler waited for was cancelled
            except Exception as error:  # noqa: BLE001 - whatever a handler raises, the others go on
                self.failed([message], error)
            if watched and message.answered:
                in_hand.discard(message)
            handled += 1
            if handled % _LOOK_EVERY == 0 and loop.time() - turn_began > _SECONDS_PER_TURN:
                await asyncio.sleep(0)
                turn_began = loop.time()

    def failed(self, messages: list[Message[Any]], error: BaseException) -> None:
        """A handler has failed with these: those it did not answer come again, or go to the dead letters."""
        log.error("%s: handler failed for %r", self._name, messages[0], exc_info=error)
        for message in messages:
            if message.answered:
                continue
            if self._bury is not None and message.attempts >= self._max_attempts:
                self._to_the_dead(message)
            else:
                message.requeue(None, backoff=self._retry.backoff)

    def _returned(self, call: Callable[[Any], object], result: object) -> None:
        """A handler has returned something, which may well be meant as an answer."""
        if result is False:
            raise TypeError(
                "the handler returned False. To have a message delivered again, raise an exception or call"
                " message.requeue(); a return finishes it"
            )
        log.warning(
            "%s: the handler returned %.80r, which means nothing here: a return finishes the message (%r)",
            self._name,
            result,
            call,
        )

    async def _abandon(self, message: Message[Any]) -> None:
        log.warning(
            "%s: message %s attempted %d times, giving up",
            self._name,
            message.id.decode(errors="replace"),
            message.attempts,
        )
        try:
            if self._give_up is not None:
                pending = self._give_up(message)
                if pending is not None:
                    await pending
            if message.answered:
                return
            if self._bury is not None:
                self._to_the_dead(message)
            else:
                message.finish()
        except asyncio.CancelledError as error:
            if _is_stopping():
                _requeue([message])
                raise
            self._not_kept(message, error)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises, the others go on
            # It was to be kept somewhere and could not: it is lost only when that has worked.
            self._not_kept(message, error)

    def _undecodable(self, message: Message[Any], error: BaseException) -> None:
        if self._bury is None:
            self.failed([message], error)
            return
        log.error("%s: %r cannot be decoded", self._name, message, exc_info=error)
        self._to_the_dead(message)

    def _to_the_dead(self, message: Message[Any]) -> None:
        """Publish it to the dead letters; it is finished when nsqd has that."""
        if self._bury is not None:
            self._in_hand.add(message)
            self._bury(message).add_done_callback(partial(self._buried, message))

    def _buried(self, message: Message[Any], confirmation: Confirmation) -> None:
        self._in_hand.discard(message)
        error = None if confirmation.cancelled() else confirmation.exception()
        if confirmation.cancelled() or error is not None:
            self._not_kept(message, error or ConnectionError("it was cancelled"))
        elif not message.answered:
            message.finish()

    def _not_kept(self, message: Message[Any], error: BaseException) -> None:
        log.error("%s: %r was given up and could not be kept", self._name, message, exc_info=error)
        if not message.answered:
            message.requeue(None, backoff=True)

    # --- many at a time

    async def _work_in_batches(self, job: Job, call: Callable[[Any], Awaitable[Any] | None]) -> None:
        while not self._ended:
            batch = await self._collect(job)
            if not batch:
                continue
            try:
                pending = call(batch)
                if pending is not None:
                    result = await pending if _is_awaitable(pending) else pending
                    if result is not None:
                        self._returned(call, result)
                if self._auto_answer:
                    for message in batch:
                        if not message.answered:
                            message.finish()
            except asyncio.CancelledError as error:
                if _is_stopping():
                    _requeue(batch)
                    raise
                self.failed(batch, error)
            except Exception as error:  # noqa: BLE001 - whatever a handler raises, the others go on
                self.failed(batch, error)
            self._in_hand.difference_update([message for message in batch if message.answered])
            await asyncio.sleep(0)

    async def _collect(self, job: Job) -> list[Message[Any]]:
        """The next batch: full, or as large as it became in the time, or all there can be."""
        loop = asyncio.get_running_loop()
        batch: list[Message[Any]] = []
        deadline: float | None = None
        try:
            while len(batch) < job.batch_size and not self._ended:
                if self._waiting:
                    message = self._waiting.popleft()
                    if not await self._is_fit(message):
                        continue
                    batch.append(message)
                    if self._auto_touch:
                        self._in_hand.add(message)
                    if deadline is None:
                        deadline = loop.time() + job.batch_seconds
                elif deadline is None:
                    await self._arrival()
                elif self._is_starved():
                    break  # nsqd sends no more before some of these are answered
                else:
                    async with asyncio.timeout_at(deadline):
                        await self._arrival()
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            _requeue(batch)
            raise
        # While it waited some may have lost their connection.
        return [message for message in batch if not message.is_lost]

    # --- threads

    def _in_threads(self, job: Job, number: int) -> Callable[[Any], Awaitable[object]]:
        loop = asyncio.get_running_loop()
        mailbox = Mailbox(loop)
        pool = ThreadPoolExecutor(job.concurrency, thread_name_prefix=f"{self._name} {number}")
        self._threads.append(pool)
        handler = job.handler

        def run(messages: Any) -> object:
            _working_for.handling = self
            try:
                result = handler(messages)
            finally:
                _working_for.handling = None
            if isinstance(result, CoroutineType):
                result.close()
                raise TypeError(f"{handler!r} returned a coroutine: a thread does not run it")
            return result

        async def hand_over(messages: Any) -> object:
            for message in messages if isinstance(messages, list) else [messages]:
                message._source = ThreadSafe(message._source, mailbox)
            return await loop.run_in_executor(pool, run, messages)

        return hand_over


def base(source: Source) -> Source:
    """The connection itself, where a message was handed to another thread."""
    return source.source if isinstance(source, ThreadSafe) else source


def _is_coroutine_function(handler: object) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object whose call is a coroutine function
    )


def _is_awaitable(pending: object) -> bool:
    return pending.__class__ is CoroutineType or hasattr(pending, "__await__")


def _requeue(batch: list[Message[Any]]) -> None:
    for message in batch:
        if not message.answered:
            message.requeue(0)


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None


def _is_stopping() -> bool:
    """Whether the task that runs is to end, rather than something it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _wake(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)


def _report(task: asyncio.Task[None]) -> None:
    """Say so at once when a task that should run forever ends by a mistake."""
    if not task.cancelled() and (error := task.exception()):
        log.critical("%s ended", task.get_name(), exc_info=error)
