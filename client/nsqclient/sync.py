"""The same client for programs without an event loop: its own loop runs in a thread, calls block.

Everything here may be called from any thread.
"""

import asyncio
import queue
import signal as signals_of_the_system
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, Generic, Self

from nsqclient import consumer as asynchronous
from nsqclient import producer
from nsqclient.config import Config
from nsqclient.consumer import ConsumerStats
from nsqclient.errors import ClosedError
from nsqclient.in_threads import ThreadSafe
from nsqclient.jobs import Decode, Job
from nsqclient.message import Message, T
from nsqclient.middleware import Middleware
from nsqclient.publications import Body, body_bytes
from nsqclient.requests import awaitable, copy_of
from nsqclient.retry import Retry
from nsqclient.threads import LoopThread, Mailbox, PublishOutcome, generation
from nsqclient.wire.durations import seconds_of

Handler = Callable[[Message[T]], None]
BatchHandler = Callable[[list[Message[T]]], None]

# Waiting without end cannot be interrupted on every system, waiting again and again can.
_PATIENCE_SECONDS: Final = 3600.0

# What a fork has left behind. To take it apart here would disturb the parent, which has the same sockets.
_inherited: Final[list[object]] = []


class Producer:
    """Publishes from threads; see :class:`nsqclient.Producer` for what the arguments mean.

    It may be used in a forked process as well: there it connects by itself, and what was under way is the
    parent's.
    """

    def __init__(
        self,
        *nsqd_addresses: str,
        lookupd_addresses: Sequence[str] | str = (),
        config: Config | None = None,
        retry_seconds: float | timedelta = 0,
        spread: bool = False,
        publish_timeout: float | timedelta = 10,
        max_unconfirmed: int = 10_000,
        max_unconfirmed_bytes: int = 32 << 20,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self._make: Callable[[], producer.Producer] = lambda: producer.Producer(
            *nsqd_addresses,
            lookupd_addresses=lookupd_addresses,
            config=config,
            retry_seconds=retry_seconds,
            spread=spread,
            publish_timeout=publish_timeout,
            max_unconfirmed=max_unconfirmed,
            max_unconfirmed_bytes=max_unconfirmed_bytes,
            middlewares=middlewares,
        )
        self._most_messages = max_unconfirmed
        self._most_bytes = max_unconfirmed_bytes
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._producer = self._make()
        self._generation = generation.number
        # What other threads have submitted and the event loop has not taken over.
        self._submitted: deque[tuple[str, bytes, PublishOutcome]] = deque()
        self._submitted_bytes = 0
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._blocked = 0  # threads that wait for room
        self._taking: asyncio.Task[None] | None = None
        self._is_awake = False  # the loop looks at what was submitted without being told
        self._comes_in_bursts = False  # nobody waits for the last that was submitted
        self._thread = LoopThread("nsq producer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(
        self,
        topic: str,
        body: Body,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | timedelta | None = None,
    ) -> None:
        """Publish one message and wait for its confirmation, *timeout* seconds at most."""
        if headers is not None:
            self._call(self._here.publish(topic, body, headers=headers, timeout=timeout))
            return
        seconds = None if timeout is None else seconds_of(timeout)
        outcome = self._submit(topic, body, seconds, in_bursts=False)
        try:
            outcome.result(seconds)
        except TimeoutError:
            outcome.cancel()
            raise

    def multi_publish(
        self,
        topic: str,
        bodies: Sequence[Body],
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | timedelta | None = None,
    ) -> None:
        """Publish several messages, all or none, and wait for their confirmation."""
        self._call(self._here.multi_publish(topic, bodies, headers=headers, timeout=timeout))

    def deferred_publish(
        self, topic: str, body: Body, delay: float | timedelta, *, timeout: float | timedelta | None = None
    ) -> None:
        """Publish one message that is delivered after *delay* seconds at the earliest."""
        self._call(self._here.deferred_publish(topic, body, delay, timeout=timeout))

    def submit(self, topic: str, body: Body, *, timeout: float | None = None) -> "Future[None]":
        """Send one message; the future ends when it is confirmed, or fails.

        Blocks while too much is under way, *timeout* seconds at most. In a callback of such a future it does
        not block.
        """
        return self._submit(topic, body, timeout, in_bursts=True)

    def _submit(self, topic: str, body: Body, timeout: float | None, *, in_bursts: bool) -> PublishOutcome:
        checked = body if body.__class__ is bytes else body_bytes(body)
        if not checked:
            raise ValueError("a message must not be empty")
        if self._generation != generation.number:
            self._begin_again()
        outcome = PublishOutcome()
        if not in_bursts:
            outcome.prepare_to_wait()
        with self._lock:
            if self._closed:
                outcome.set_exception(ClosedError("the producer is closed"))
                return outcome
            if self._is_full and not self._thread.is_current:
                self._wait_for_room(timeout)
            self._submitted.append((topic, checked, outcome))
            self._submitted_bytes += len(checked)
            self._comes_in_bursts = in_bursts
            if not self._is_awake:
                self._is_awake = True
                self._thread.loop.call_soon_threadsafe(self._take)
        return outcome

    def ping(self, *, timeout: float | timedelta | None = None) -> None:
        """Connect if need be, or raise what prevents it."""
        self._call(self._here.ping(timeout=timeout))

    def flush(self, *, timeout: float | timedelta | None = None) -> None:
        """Wait until nothing is under way; errors are in the futures that submit() returned."""
        self._call(self._flush(), timeout)

    def close(self, drain_seconds: float | timedelta = 30) -> None:
        """Wait for what is under way, that long at most, and hang up."""
        if self._generation != generation.number:
            self._closed = True  # it was never used in this process
            _inherited.append((self._producer, self._thread))
            return
        if self._thread.is_current:
            raise RuntimeError("this call would wait for itself: it was made on the event loop of the client")
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._room.notify_all()
        try:
            self._thread.call(self._finish(seconds_of(drain_seconds)))
        finally:
            self._thread.stop()

    # --- inside

    @property
    def _here(self) -> producer.Producer:
        """The producer of this process."""
        if self._generation != generation.number:
            self._begin_again()
        return self._producer

    def _begin_again(self) -> None:
        _inherited.append((self._producer, self._thread, self._submitted))
        self._begin()

    def _call(self, work: Any, timeout: float | timedelta | None = None) -> None:
        self._thread.call(work, None if timeout is None else seconds_of(timeout))

    @property
    def _is_full(self) -> bool:
        return len(self._submitted) >= self._most_messages or self._submitted_bytes >= self._most_bytes

    def _wait_for_room(self, timeout: float | None) -> None:
        self._blocked += 1
        try:
            if not self._room.wait_for(lambda: self._closed or not self._is_full, timeout):
                raise TimeoutError(f"no room for a message within {timeout:g} s")
        finally:
            self._blocked -= 1
        if self._closed:
            raise ClosedError("the producer is closed")

    # --- on the loop

    def _take(self) -> None:
        """Hand over what was submitted, as far as there is room, and look again in the next round.

        A thread that submits one after the other would otherwise wake the loop for each of them.
        """
        if self._taking is not None:
            return  # it waits for room
        offer, submitted = self._producer.offer, self._submitted
        taken = size = 0
        while submitted:
            topic, body, outcome = submitted[0]
            try:
                if not offer(topic, body, outcome):
                    self._taken(taken, size)
                    self._taking = asyncio.get_running_loop().create_task(self._wait_and_take())
                    return
            except Exception as error:  # noqa: BLE001 - whatever it is, it is for whoever submitted
                outcome.set_exception(error)
            submitted.popleft()
            taken += 1
            size += len(body)
        self._taken(taken, size)
        with self._lock:
            self._is_awake = (taken > 0 and self._comes_in_bursts) or bool(submitted)
        if self._is_awake:
            self._thread.loop.call_soon(self._take)

    def _taken(self, count: int, size: int) -> None:
        with self._lock:
            self._submitted_bytes -= size
            if self._blocked and not self._is_full:
                self._room.notify(count)

    async def _wait_and_take(self) -> None:
        try:
            await self._producer.wait_for_room(len(self._submitted[0][1]))
        except ClosedError as error:
            self._fail(error)
        finally:
            self._taking = None
        self._take()

    def _fail(self, error: Exception) -> None:
        """None of what was submitted will be sent."""
        while self._submitted:
            _, body, outcome = self._submitted.popleft()
            self._taken(1, len(body))
            outcome.set_exception(copy_of(error))

    async def _flush(self) -> None:
        while self._submitted:
            last = self._submitted[-1][2]
            await asyncio.wait([awaitable(last)])
        await self._producer.flush()

    async def _finish(self, drain_seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_seconds):
                await self._flush()
        if self._taking is not None:
            self._taking.cancel()
        self._fail(ClosedError("the producer was closed before this was sent"))
        await self._producer.close(0)


class Consumer(Generic[T]):
    """Calls a handler, which may block, in threads; or, without a handler, is iterated over.

        with Consumer("orders", "billing", lookupd_addresses=["127.0.0.1:4161"]) as consumer:
            for message in consumer:
                print(message.body)
                message.finish()

    See :class:`nsqclient.Consumer` for what the arguments mean.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        handler: Handler[T] | None = None,
        *,
        nsqd_addresses: Sequence[str] | str = (),
        lookupd_addresses: Sequence[str] | str = (),
        config: Config | None = None,
        concurrency: int = 1,
        auto_answer: bool = True,
        auto_touch: bool = False,
        retry: Retry | None = None,
        dead_letter: str = "",
        give_up: Handler[T] | None = None,
        decode: Decode[T] | None = None,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        if handler is not None:
            Job(handler, concurrency, in_threads=True)  # a mistake is told before a thread is started
        self._consumer: asynchronous.Consumer[T] = asynchronous.Consumer(
            topic,
            channel,
            nsqd_addresses=nsqd_addresses,
            lookupd_addresses=lookupd_addresses,
            config=config,
            auto_answer=auto_answer and handler is not None,
            auto_touch=auto_touch,
            retry=retry,
            dead_letter=dead_letter,
            give_up=give_up,
            decode=decode,
            middlewares=middlewares,
        )
        self._received: queue.SimpleQueue[Message[T] | None] = queue.SimpleQueue()
        self._has_handler = handler is not None
        self._started = False
        if handler is not None:
            self._consumer.add_handler(handler, concurrency=concurrency, in_threads=True)
        self._closing = False
        self._closed = threading.Event()
        self._stop = threading.Event()
        self._thread = LoopThread(f"nsq consumer {topic}/{channel}")
        self._mailbox = Mailbox(self._thread.loop)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message[T]]:
        """The messages as they come, until the consumer is closed; each has to be answered."""
        if self._has_handler:
            raise RuntimeError("this consumer has a handler, which gets the messages")
        while (message := self._received.get()) is not None:
            if not message.is_lost:
                yield message
        self._received.put(None)  # for others that iterate

    @property
    def nsqd_addresses(self) -> list[str]:
        """The nsqd it is connected to now."""
        return self._consumer.nsqd_addresses

    @property
    def stats(self) -> ConsumerStats:
        return self._consumer.stats

    def add_handler(self, handler: Handler[T], *, concurrency: int = 1) -> None:
        """Have messages handled by this one as well: each goes to whichever handler is free."""
        self._has_handler = True
        self._consumer.add_handler(handler, concurrency=concurrency, in_threads=True)

    def add_batch_handler(
        self, handler: BatchHandler[T], *, size: int, seconds: float = 0.25, concurrency: int = 1
    ) -> None:
        """Have messages handled in lists of up to *size*, for which it waits *seconds* at most."""
        self._has_handler = True
        self._consumer.add_batch_handler(
            handler, size=size, seconds=seconds, concurrency=concurrency, in_threads=True
        )

    def change_max_in_flight(self, max_in_flight: int) -> None:
        """Share out another number from now on; 0 pauses."""
        self._thread.loop.call_soon_threadsafe(self._consumer.change_max_in_flight, max_in_flight)

    def start(self) -> None:
        """Begin to look for nsqd; raises what failed when a fixed address cannot be reached."""
        if self._thread.is_inherited:
            raise RuntimeError("it was made before this process was forked; make it in the child process")
        if not self._has_handler:
            self._consumer.add_handler(self._hand_over)
        self._started = True
        try:
            self._thread.call(self._consumer.start())
        except BaseException:
            self._end()
            raise

    def run(
        self,
        *,
        signals: Sequence[signals_of_the_system.Signals] = (
            signals_of_the_system.SIGINT,
            signals_of_the_system.SIGTERM,
        ),
        drain_seconds: float = 30,
    ) -> None:
        """Handle messages until one of *signals* comes or :meth:`stop` is called, then close.

        Signals reach the main thread only; elsewhere pass none and call :meth:`stop`.
        """
        before = {one: signals_of_the_system.signal(one, lambda *_: self._stop.set()) for one in signals}
        try:
            if not self._started:
                self.start()
            while not self._stop.wait(_PATIENCE_SECONDS):
                pass
        finally:
            for one, handler in before.items():
                signals_of_the_system.signal(one, handler)
            self.close(drain_seconds)

    def stop(self) -> None:
        """Have :meth:`run` end; may be called in a handler."""
        self._stop.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until another thread closes the consumer; False when the time is up first."""
        if seconds is not None:
            return self._closed.wait(seconds)
        while not self._closed.wait(_PATIENCE_SECONDS):
            pass
        return True

    def close(self, drain_seconds: float = 30) -> None:
        """Take no more, let the handlers finish what is here, give back what they cannot in time."""
        if self._closed.is_set() or self._thread.is_inherited:
            return
        if self._consumer.is_called_by_a_handler:
            raise RuntimeError("a handler cannot wait for its own end: call stop(), which run() waits for")
        self._closing = True
        self._stop.set()
        self._give_back()
        try:
            self._thread.call(self._consumer.close(drain_seconds))
        finally:
            self._end()

    def _end(self) -> None:
        self._closed.set()
        self._received.put(None)
        self._thread.stop()

    def _give_back(self) -> None:
        """Requeue what was not taken by an iteration."""
        with suppress(queue.Empty):
            while True:
                message = self._received.get_nowait()
                if message is not None:
                    message.requeue(0)

    def _hand_over(self, message: Message[T]) -> None:
        if self._closing:
            message.requeue(0)
            return
        message._source = ThreadSafe(message._source, self._mailbox)
        self._received.put(message)
