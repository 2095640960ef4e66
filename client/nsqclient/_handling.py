"""Hands messages to handlers, on the event loop or in threads, one by one or in batches."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from nsqclient._jobs import Call, Decode, Job, is_awaitable
from nsqclient._message import Message, Source
from nsqclient._middleware import Middleware, around
from nsqclient._retry import Retry
from nsqclient._tasks import cancellations, is_stopping, spawn
from nsqclient._thread_safe import works_for
from nsqclient._verdicts import Verdicts, requeue_all

if TYPE_CHECKING:
    from nsqclient._in_threads import HandlerThreads

log = logging.getLogger("nsqclient")

# A quick plain handler must not keep the event loop from its sockets while messages wait. The time is checked
# after this many messages; after this many seconds other tasks have their turn.
_CHECK_EVERY: Final = 32
_SECONDS_PER_TURN: Final = 0.005

# How long a cancelled handler may take to end; after that the close continues without it.
CANCEL_SECONDS: Final = 1.0

# Exceptions that end a program, or a coroutine that is no longer needed, are no failures of a handler.
_OF_THE_PROGRAM: Final = (SystemExit, KeyboardInterrupt, GeneratorExit)


class Handling:
    """The messages that wait for a handler, and the tasks that pass them to it."""

    def __init__(
        self,
        name: str,
        *,
        retry: Retry,
        auto_answer: bool,
        auto_touch: bool,
        is_starved: Callable[[], bool],
        publish_dead_letter: Callable[[Message[Any], str], asyncio.Future[None]] | None = None,
        decode: Decode[Any] | None = None,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        """*publish_dead_letter* takes a message and the reason for the headers of its dead letter."""
        self._name = name
        self._verdicts = Verdicts(name, retry, publish_dead_letter)
        self._auto_answer = auto_answer
        self._auto_touch = auto_touch
        self._is_starved = is_starved
        self._decode = decode
        self._middlewares = tuple(middlewares)
        self._jobs: list[Job] = []
        self._waiting: deque[Message[Any]] = deque()
        self._hungry: deque[asyncio.Future[None]] = deque()  # tasks that wait for a message
        self._in_hand = self._verdicts.in_hand
        self._workers: list[asyncio.Task[None]] = []
        self._threads: list[HandlerThreads] = []
        self._expects_more = True  # messages may still arrive
        self._ended = False  # handlers get no more messages

    @property
    def has_jobs(self) -> bool:
        return bool(self._jobs)

    @property
    def demand(self) -> int:
        """The number of messages that the handlers can process at the same time."""
        return sum(job.demand for job in self._jobs)

    @property
    def is_called_by_a_handler(self) -> bool:
        """Whether the caller runs in one of the handlers."""
        return works_for(self) or _current_task() in self._workers

    def add(self, job: Job) -> None:
        if self._workers:
            raise RuntimeError("handlers are added before the consumer is started")
        self._jobs.append(job)

    # --- start and stop

    def start(self) -> None:
        for number, job in enumerate(self._jobs):
            call: Call = job.handler
            threads = None
            if job.in_threads:
                # Imported here because a thread pool imports much and few programs have such handlers.
                from nsqclient._in_threads import HandlerThreads

                threads = HandlerThreads(self, job, f"{self._name} {number}")
                self._threads.append(threads)
                call = threads.call
            elif asyncio.get_running_loop().get_debug():
                call = partial(_watched_call, self._name, call)
            if self._middlewares:
                methods = (one.handle_batch if job.batch_size else one.handle for one in self._middlewares)
                call = around(methods, call)
            for _ in range(job.concurrency):
                if job.batch_size:
                    work = self._work_in_batches(job, call)
                elif threads is None or self._middlewares or self._auto_touch:
                    work = self._work(call)
                else:
                    work = self._work_in_a_thread(threads)
                self._workers.append(spawn(work, f"{self._name} handler {number}"))

    async def stop(self) -> None:
        """End the handlers; the messages they have in hand are requeued."""
        self._ended = True
        workers = [worker for worker in self._workers if not worker.done()]
        for worker in workers:
            worker.cancel()
        if workers:
            _, late = await asyncio.wait(workers, timeout=CANCEL_SECONDS)
            if late:
                log.error("%s: %d handlers do not end when they are cancelled", self._name, len(late))
        for threads in self._threads:
            threads.stop()

    def expect_no_more(self) -> None:
        """All messages have arrived: batches need not wait for others."""
        self._expects_more = False
        self._wake_for(len(self._hungry))

    def requeue_waiting(self) -> None:
        """Requeue the messages without a handler, and pass no more to handlers."""
        self._ended = True
        while (message := self._first()) is not None:
            requeue_all([message])
        self._wake_for(len(self._hungry))

    # --- messages

    def receive(self, messages: list[Message[Any]]) -> None:
        if self._ended:
            requeue_all(messages)
            return
        self._waiting.extend(messages)
        self._wake_for(len(messages))

    def forget(self, source: Source) -> None:
        """Drop the messages of a lost connection: handling them would only make duplicates."""
        for _ in range(len(self._waiting)):
            message = self._first()
            if message is not None and message._source is not source:
                self._waiting.append(message)

    def received_before(self, latest: float) -> Iterable[Message[Any]]:
        """The messages received up to *latest* that wait for a handler, or for its answer."""
        self._in_hand.difference_update([one for one in self._in_hand if one.answered or one.is_lost])
        return [one for one in (*self._waiting, *self._in_hand) if one.received_at <= latest]

    async def next(self) -> Message[Any] | None:
        """The next message of an iteration; None when there will be no more."""
        while not self._ended:
            message = self._first()
            if message is None:
                await self._arrival()
                continue
            if await self._is_deliverable(message):
                if self._auto_touch:
                    self._in_hand.add(message)
                return message
        return None

    def take(self) -> Message[Any] | None:
        """Like next(), for any thread; None when no message waits or the event loop must check it."""
        if self._ended or self._jobs or self._decode is not None or self._auto_touch:
            return None
        while (message := self._first()) is not None:
            if message.attempts > self._verdicts.max_attempts:
                self._waiting.appendleft(message)
                return None
            if not message.is_lost:
                return message
        return None

    def failed(self, messages: list[Message[Any]], error: BaseException | None) -> None:
        """An iteration has failed with these messages."""
        self._verdicts.failed(messages, error)

    def _first(self) -> Message[Any] | None:
        """The message that has waited longest, or None; handler threads also take messages."""
        try:
            return self._waiting.popleft()
        except IndexError:
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
                # It no longer waits: a wake-up for it would be lost, and a message would stay unhandled.
                if arrived in self._hungry:
                    self._hungry.remove(arrived)
            elif self._hungry:  # woken for a message it cannot take any more
                _wake(self._hungry.popleft())
            raise

    async def _is_deliverable(self, message: Message[Any]) -> bool:
        """Return whether a handler gets the message; otherwise it is a dead letter, discarded or failed."""
        if message.attempts > self._verdicts.max_attempts:
            await self._verdicts.give_up(message)
            return False
        if self._decode is not None:
            try:
                message._value = self._decode(message.body)
            except Exception as error:  # noqa: BLE001 - other messages continue whatever it raises
                self._verdicts.undecodable(message, error)
                return False
        return True

    # --- one at a time

    async def _work(self, call: Call) -> None:
        loop = asyncio.get_running_loop()
        waiting, verdicts = self._waiting, self._verdicts
        auto_answer, max_attempts = self._auto_answer, verdicts.max_attempts
        watched, in_hand = self._auto_touch, self._in_hand
        decodes = self._decode is not None
        turn_began = loop.time()
        handled = before = 0
        cancelling = cast("asyncio.Task[None]", asyncio.current_task()).cancelling
        while not self._ended:
            try:
                message = waiting.popleft()
            except IndexError:
                await self._arrival()
                turn_began = loop.time()
                continue
            if (decodes or message.attempts > max_attempts) and not await self._is_deliverable(message):
                continue
            if watched:
                in_hand.add(message)
            try:
                pending = call(message)
                if pending is not None:
                    before = cancelling()
                    result = await pending if is_awaitable(pending) else pending
                    if result is not None:
                        verdicts.returned(call, result)
                if auto_answer and not message.answered:
                    message.finish()
            except asyncio.CancelledError as error:
                if is_stopping(before):
                    requeue_all([message])
                    raise
                verdicts.failed([message], error)  # only something the handler waited for was cancelled
            except _OF_THE_PROGRAM:
                raise
            except BaseException as error:  # noqa: BLE001 - other messages continue whatever it raises
                verdicts.failed([message], error)
            if watched and message.answered:
                in_hand.discard(message)
            handled += 1
            if handled % _CHECK_EVERY == 0 and loop.time() - turn_began > _SECONDS_PER_TURN:
                await asyncio.sleep(0)
                turn_began = loop.time()

    async def _work_in_a_thread(self, threads: "HandlerThreads") -> None:
        from nsqclient._in_threads import HandlerRun

        run = HandlerRun(threads, self._waiting, self._verdicts, self._decode, auto_answer=self._auto_answer)
        while not self._ended:
            if not self._waiting:
                await self._arrival()
                continue
            tried_too_often = await run.run()
            if tried_too_often is not None:
                await self._verdicts.give_up(tried_too_often)

    # --- many at a time

    async def _work_in_batches(self, job: Job, call: Call) -> None:
        verdicts = self._verdicts
        while not self._ended:
            batch = await self._collect(job)
            if not batch:
                continue
            before = cancellations()
            try:
                pending = call(batch)
                if pending is not None:
                    result = await pending if is_awaitable(pending) else pending
                    if result is not None:
                        verdicts.returned(call, result)
                if self._auto_answer:
                    for message in batch:
                        if not message.answered:
                            message.finish()
            except asyncio.CancelledError as error:
                if is_stopping(before):
                    requeue_all(batch)
                    raise
                verdicts.failed(batch, error)
            except _OF_THE_PROGRAM:
                raise
            except BaseException as error:  # noqa: BLE001 - other messages continue whatever it raises
                verdicts.failed(batch, error)
            self._in_hand.difference_update([message for message in batch if message.answered])
            await asyncio.sleep(0)

    async def _collect(self, job: Job) -> list[Message[Any]]:
        """The next batch: full, or what arrived in time, or all that nsqd sends before some are answered."""
        loop = asyncio.get_running_loop()
        batch: list[Message[Any]] = []
        deadline: float | None = None
        try:
            while len(batch) < job.batch_size and not self._ended:
                if (message := self._first()) is not None:
                    if not await self._is_deliverable(message):
                        continue
                    batch.append(message)
                    if self._auto_touch:
                        self._in_hand.add(message)
                    if deadline is None:
                        deadline = loop.time() + job.batch_seconds
                elif deadline is None:
                    await self._arrival()
                elif not self._expects_more or self._is_starved():
                    break  # nsqd sends no more, or not before some of the batch is answered
                else:
                    async with asyncio.timeout_at(deadline):
                        await self._arrival()
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            requeue_all(batch)
            raise
        # Some may have lost their connection while the batch waited.
        return [message for message in batch if not message.is_lost]


def _watched_call(name: str, handler: Call, messages: Any) -> Awaitable[Any] | None:
    """Call a handler in debug mode. Log a warning when the call blocks the event loop."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        return handler(messages)
    finally:
        if (seconds := loop.time() - began) >= loop.slow_callback_duration:
            log.warning(
                "%s: the handler %r blocked the event loop for %.3f s: use in_threads=True",
                name,
                handler,
                seconds,
            )


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None


def _wake(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)
