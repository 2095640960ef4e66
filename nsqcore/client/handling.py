"""From messages to handlers: who gets which, on the event loop or in threads, one by one or many."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from nsqcore.client.delivery import Delivery, Outcome, Source

log = logging.getLogger("nsqcore.client")

Handler: TypeAlias = Callable[[Delivery], Awaitable[None] | None]
BatchHandler: TypeAlias = Callable[[list[Delivery]], Awaitable[None] | None]

# A plain function that is quick must not keep the event loop from its sockets while messages wait: every
# so many messages the time is looked at, and after so many seconds the others have their turn.
_LOOK_EVERY: Final = 32
_SECONDS_PER_TURN: Final = 0.005


@dataclass(frozen=True, slots=True)
class Job:
    """A handler with how it wants to be called."""

    handler: Callable[[Any], Awaitable[None] | None]
    concurrency: int = 1
    in_threads: bool = False
    batch_size: int = 0  # 0 for one message at a time
    batch_seconds: float = 0

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError(f"concurrency {self.concurrency} is not positive")
        if self.batch_size < 0 or self.batch_seconds < 0:
            raise ValueError("size and seconds of a batch must not be negative")


class ThreadSafe:
    """Lets another thread answer the messages of a connection, which belongs to the event loop."""

    def __init__(self, source: Source, loop: asyncio.AbstractEventLoop) -> None:
        self._source = source
        self._loop = loop

    @property
    def address(self) -> str:
        return self._source.address

    @property
    def is_closed(self) -> bool:
        return self._source.is_closed

    def answer(self, command: bytes, outcome: Outcome) -> None:
        self._loop.call_soon_threadsafe(self._source.answer, command, outcome)

    def touch(self, delivery: Delivery) -> None:
        self._loop.call_soon_threadsafe(self._source.touch, delivery)

    def default_delay(self, delivery: Delivery) -> float:
        return self._source.default_delay(delivery)


class Handling:
    """The messages that wait for a handler, and the tasks that hand them over."""

    def __init__(
        self,
        name: str,
        *,
        max_attempts: int,
        auto_answer: bool,
        auto_touch: bool,
        give_up: Handler | None,
        is_starved: Callable[[], bool],
    ) -> None:
        self._name = name
        self._max_attempts = max_attempts or 1 << 16  # attempts are 16 bits
        self._auto_answer = auto_answer
        self._auto_touch = auto_touch
        self._give_up = give_up
        self._is_starved = is_starved
        self._jobs: list[Job] = []
        self._waiting: deque[Delivery] = deque()
        self._hungry: deque[asyncio.Future[None]] = deque()  # tasks that wait for a message
        self._in_hand: set[Delivery] = set()  # given to a handler and not answered, for touching
        self._workers: list[asyncio.Task[None]] = []
        self._threads: list[ThreadPoolExecutor] = []

    @property
    def has_jobs(self) -> bool:
        return bool(self._jobs)

    def add(self, job: Job) -> None:
        if self._workers:
            raise RuntimeError("handlers are added before the consumer is started")
        self._jobs.append(job)

    # --- life

    def start(self) -> None:
        for number, job in enumerate(self._jobs):
            call = job.handler
            if job.in_threads:
                call = self._in_threads(job, number)
            for _ in range(job.concurrency):
                work = self._work_in_batches(job, call) if job.batch_size else self._work(call)
                worker = asyncio.create_task(work, name=f"{self._name} handler {number}")
                worker.add_done_callback(_report)
                self._workers.append(worker)

    async def stop(self) -> None:
        """End the handlers; what they have in hand goes back to nsqd."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        for pool in self._threads:
            pool.shutdown(wait=False, cancel_futures=True)

    def give_back(self) -> None:
        """Requeue what no handler has yet."""
        while self._waiting:
            delivery = self._waiting.popleft()
            if not delivery.answered:
                delivery.requeue()

    # --- messages

    def receive(self, deliveries: list[Delivery]) -> None:
        self._waiting.extend(deliveries)
        for _ in range(min(len(deliveries), len(self._hungry))):
            _wake(self._hungry.popleft())

    def forget(self, source: Source) -> None:
        """Drop what can no longer be answered: handling it would only make a duplicate."""
        self._waiting = deque(delivery for delivery in self._waiting if delivery._source is not source)

    def held_since(self, latest: float) -> Iterable[Delivery]:
        """Those received before this time that wait for a handler, or for the answer of one."""
        self._in_hand.difference_update([one for one in self._in_hand if one.answered or one.is_lost])
        return [one for one in (*self._waiting, *self._in_hand) if one.received_at <= latest]

    async def _arrival(self) -> None:
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._hungry.append(arrived)
        try:
            await arrived
        except asyncio.CancelledError:
            if arrived.done() and self._hungry:  # woken for a message it cannot take any more
                _wake(self._hungry.popleft())
            raise

    # --- one at a time

    async def _work(self, call: Handler) -> None:
        loop = asyncio.get_running_loop()
        auto_answer, max_attempts = self._auto_answer, self._max_attempts
        watched, in_hand = self._auto_touch, self._in_hand
        turn_began = loop.time()
        handled = 0
        while True:
            if not self._waiting:
                await self._arrival()
                turn_began = loop.time()
                continue
            delivery = self._waiting.popleft()
            if delivery.attempts > max_attempts:
                await self._abandon(delivery)
                continue
            if watched:
                in_hand.add(delivery)
            try:
                pending = call(delivery)
                if pending is not None:
                    await pending
                if auto_answer and not delivery.answered:
                    delivery.finish()
            except asyncio.CancelledError as error:
                if _is_stopping():
                    _requeue([delivery])
                    raise
                self._failed([delivery], error)  # something the handler waited for was cancelled
            except Exception as error:  # noqa: BLE001 - whatever a handler raises, the others go on
                self._failed([delivery], error)
            if watched and delivery.answered:
                in_hand.discard(delivery)
            handled += 1
            if handled % _LOOK_EVERY == 0 and loop.time() - turn_began > _SECONDS_PER_TURN:
                await asyncio.sleep(0)
                turn_began = loop.time()

    def _failed(self, deliveries: list[Delivery], error: BaseException) -> None:
        log.error("%s: handler failed for %r", self._name, deliveries[0], exc_info=error)
        for delivery in deliveries:
            if not delivery.answered:
                delivery.requeue(None, backoff=True)

    async def _abandon(self, delivery: Delivery) -> None:
        log.warning(
            "%s: message %s attempted %d times, giving up",
            self._name,
            delivery.id.decode(errors="replace"),
            delivery.attempts,
        )
        try:
            if self._give_up is not None:
                pending = self._give_up(delivery)
                if pending is not None:
                    await pending
            if not delivery.answered:
                delivery.finish()
        except asyncio.CancelledError as error:
            if _is_stopping():
                _requeue([delivery])
                raise
            self._failed([delivery], error)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises, the others go on
            # It was to be kept somewhere and could not: it is lost only when that has worked.
            self._failed([delivery], error)

    # --- many at a time

    async def _work_in_batches(self, job: Job, call: BatchHandler) -> None:
        while True:
            batch = await self._collect(job)
            try:
                pending = call(batch)
                if pending is not None:
                    await pending
                if self._auto_answer:
                    for delivery in batch:
                        if not delivery.answered:
                            delivery.finish()
            except asyncio.CancelledError as error:
                if _is_stopping():
                    _requeue(batch)
                    raise
                self._failed(batch, error)
            except Exception as error:  # noqa: BLE001 - whatever a handler raises, the others go on
                self._failed(batch, error)
            self._in_hand.difference_update([delivery for delivery in batch if delivery.answered])
            await asyncio.sleep(0)

    async def _collect(self, job: Job) -> list[Delivery]:
        """The next batch: full, or as large as it became in the time, or all there can be."""
        loop = asyncio.get_running_loop()
        batch: list[Delivery] = []
        deadline: float | None = None
        try:
            while len(batch) < job.batch_size:
                if self._waiting:
                    delivery = self._waiting.popleft()
                    if delivery.attempts > self._max_attempts:
                        await self._abandon(delivery)
                        continue
                    batch.append(delivery)
                    if self._auto_touch:
                        self._in_hand.add(delivery)
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
        return [delivery for delivery in batch if not delivery.is_lost] or await self._collect(job)

    # --- threads

    def _in_threads(self, job: Job, number: int) -> Callable[[Any], Awaitable[None]]:
        loop = asyncio.get_running_loop()
        pool = ThreadPoolExecutor(job.concurrency, thread_name_prefix=f"{self._name} {number}")
        self._threads.append(pool)

        async def hand_over(deliveries: Any) -> None:
            for delivery in deliveries if isinstance(deliveries, list) else [deliveries]:
                delivery._source = ThreadSafe(delivery._source, loop)
            await loop.run_in_executor(pool, job.handler, deliveries)

        return hand_over


def _requeue(batch: list[Delivery]) -> None:
    for delivery in batch:
        if not delivery.answered:
            delivery.requeue()


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
